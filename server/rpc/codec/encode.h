// CallReply -> NormalizeResponse and its relatives on the wire, without copying output bytes: small messages are
// serialised, tensor bytes follow their tag and length as slices of their own. `data`, `tensor`, `outputs` have the
// highest numbers of their messages, so the result is in field order, as any serialiser would write it.
// In the path: between the engine's Done and Stream::Write. Pure functions.
#ifndef NORMD_SERVER_RPC_CODEC_ENCODE_H_
#define NORMD_SERVER_RPC_CODEC_ENCODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/rpc/status.pb.h"
#include "normd/v1/normalizer.pb.h"
#include "server/engine/call.h"
#include "server/rpc/codec/message.h"
#include "server/rpc/transport/observation.h"

namespace normd::rpc {

void EncodeCommitResult(const CommitResult& result, bool output_available, v1::StateResult* message);
// An f64 tensor by copy, for small things such as a session's state.
void EncodeF64(const std::vector<double>& values, v1::Tensor* message);

// A NormalizeResponse. Notes times, rows and method in the observation's record; sends the times if wanted. With
// `chunked`, tensors that would be sent are put there instead, in order: their bytes follow in chunks.
WireBody EncodeNormalizeResponse(CallReply reply, bool want_timings, Observation& observation,
                                 std::vector<Buffer>* chunked = nullptr);
// Adds what one call did to the record of its request, which may have several. They travelled together, so that the
// time of each is part of the same time, and the longest is that of the request.
void NoteReply(const CallReply& reply, RequestRecord& record);
// A ComputeMomentsResponse.
WireBody EncodeComputeMomentsResponse(CallReply reply, Observation& observation);
// BatchItemResults: of a NormalizeResponse, and of an error.
WireBody EncodeBatchItem(WireBody response);
WireBody EncodeBatchItemError(const absl::Status& error);
// StreamResponses.
WireBody EncodeStreamReply(uint64_t sequence, WireBody response);
WireBody EncodeStreamError(uint64_t sequence, const google::rpc::Status& error);
// A chunk of `data` at `offset` of its tensor.
struct ChunkPlace {
  int64_t offset = 0;
  bool last = false;
  uint32_t crc32c = 0;
};
WireBody EncodeStreamChunk(uint64_t sequence, const ChunkPlace& place, grpc::Slice data);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_ENCODE_H_

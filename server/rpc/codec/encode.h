// Encodes a CallReply as NormalizeResponse and related messages, without copying output bytes: small messages are
// serialised, and tensor bytes follow their tag and length as slices of their own. `data`, `tensor` and `outputs` have
// the highest field numbers of their messages, so the result is in field order, as any serialiser would write it.
// In the path: between the engine's Done and RpcCall::Write.
// Threads: functions without state of their own.
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
#include "server/rpc/edge/observation.h"

namespace normd::rpc {

void EncodeCommitResult(const CommitResult& result, bool output_available, v1::StateResult* message);
// Encodes an f64 tensor by copy, for small tensors such as a session's state.
void EncodeF64(const std::vector<double>& values, v1::Tensor* message);

// Encodes a NormalizeResponse, with timings if `want_timings`, and records times, rows and method in `observation`. If
// `chunked` is not null, tensors that would be sent are moved there instead, in order, to be sent in chunks.
WireBody EncodeNormalizeResponse(CallReply reply, bool want_timings, Observation& observation,
                                 std::vector<Buffer>* chunked = nullptr);
// Adds one call to the record of its request, which may have several calls. The calls of a request run together, so
// their times overlap, and the longest is the request's time.
void NoteReply(const CallReply& reply, RequestRecord& record);
// Encodes a ComputeMomentsResponse.
WireBody EncodeComputeMomentsResponse(CallReply reply, Observation& observation);
// Encode a BatchItemResult with a NormalizeResponse, or with an error. An error in short is its code and the beginning
// of its message, at most kShortMessageBytes, without details: a request of two bytes an item must not make a reply of
// hundreds for each.
inline constexpr size_t kShortMessageBytes = 256;
enum class ErrorForm : uint8_t { kWhole, kShort };
WireBody EncodeBatchItem(WireBody response);
WireBody EncodeBatchItemError(const absl::Status& error, ErrorForm form);
// Encode a StreamResponse with a NormalizeResponse, an error, or a chunk.
WireBody EncodeStreamReply(uint64_t sequence, WireBody response);
WireBody EncodeStreamError(uint64_t sequence, const google::rpc::Status& error);
// The place of a chunk in its tensor, and the checksum of its data.
struct ChunkPlace {
  int64_t offset = 0;
  bool last = false;
  uint32_t crc32c = 0;
};
WireBody EncodeStreamChunk(uint64_t sequence, const ChunkPlace& place, Slice data);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_ENCODE_H_

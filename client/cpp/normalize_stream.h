// The inside of NormalizeStream: the gRPC call that it wraps. Included by client.cc and normalize_stream.cc alone.
// Threads: one writer and one reader at a time, as NormalizeStream allows. Ownership: a NormalizeStream owns one.
#ifndef NORMD_CLIENT_CPP_NORMALIZE_STREAM_H_
#define NORMD_CLIENT_CPP_NORMALIZE_STREAM_H_

#include <memory>

#include "client/cpp/channels.h"

namespace normd {

struct NormalizeStream::Call {
  client::Callee callee;
  grpc::ClientContext context;  // outlives `stream`
  std::unique_ptr<grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamResponse>> stream;
  bool writes_done = false;  // for the writing thread alone
  bool reads_done = false;   // for the reading thread alone
  bool finished = false;
};

}  // namespace normd

#endif  // NORMD_CLIENT_CPP_NORMALIZE_STREAM_H_

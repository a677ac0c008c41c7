// The servers that are compared: normd, and those beside it.
#ifndef NORMD_TESTS_BENCH_DATAPATH_OPPONENTS_H_
#define NORMD_TESTS_BENCH_DATAPATH_OPPONENTS_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/bench/datapath/rms_rows.h"

namespace normd::bench {

// The denominator of the data path's figures: what gRPC alone allows. Messages go back as the slices they came in,
// whatever method was called: one message and the end for a unary call, each message for a method called *Stream.
//
// It is fair: the completion queues, threads and channel arguments are those of normd, calls wait to be taken in
// numbers, nothing is parsed, computed, counted or looked up.
class EchoServer {
 public:
  // REQUIRES: before the server is built.
  void AddTo(grpc::ServerBuilder& builder, int queues);
  // Never returns: serves until the process is killed. REQUIRES: the server was built.
  [[noreturn]] void Serve();

 private:
  grpc::AsyncGenericService service_;
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
};

// Services that protoc generates, on the callback API, written as one writes them: the payload as bytes, or as numbers.
// Each borrows `rows`.
std::unique_ptr<grpc::Service> MakeBytesService(RmsRows* rows);
std::unique_ptr<grpc::Service> MakeFloatsService(RmsRows* rows);

// What this program does as --serve=KIND: serves as "echo", "normd" (which refuses nothing), "normd_default" (with its
// own limits), "bytes" or "floats" on `listen`, "127.0.0.1:0" or "unix:/path". Writes the address to standard output,
// and serves until the process is killed or the one that started it is no more. Returns, with an exit status, only when
// it cannot serve. REQUIRES: the process has done nothing else.
int Serve(const std::string& kind, const std::string& listen);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_OPPONENTS_H_

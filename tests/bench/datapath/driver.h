// The client of every measurement: a completion queue on one thread, calls by name, messages that were serialised
// before. It costs the same whichever server answers, and looks at status and length of a reply alone.
// Threads: a loop runs on its caller's thread; several may run at a time.
#ifndef NORMD_TESTS_BENCH_DATAPATH_DRIVER_H_
#define NORMD_TESTS_BENCH_DATAPATH_DRIVER_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace normd::bench {

// Each a connection of its own to "127.0.0.1:8001" or "unix:/path", without a limit on the size of messages.
std::vector<std::shared_ptr<grpc::Channel>> NewChannels(const std::string& address, int count);

// What is sent, to whom. Calls go to the channels in turn.
struct Target {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::string method;  // "/normd.v1.Normalizer/Normalize"
  bool stream = false;
  std::vector<grpc::ByteBuffer> requests;  // each of what is in flight sends one of them, in turn
  size_t min_reply_bytes = 0;              // a shorter reply is an error: streams answer errors in messages
};

struct LoopResult {
  int64_t requests = 0;
  absl::Duration time;     // from the first request to the last reply
  grpc::ByteBuffer reply;  // the last one

  double PerSecond() const { return static_cast<double>(requests) / absl::ToDoubleSeconds(time); }
  // The time divided by the number of requests.
  double Micros() const { return absl::ToDoubleMicroseconds(time) / static_cast<double>(requests); }
};

// A closed loop: `in_flight` requests at any time, each followed by the next until `duration` has passed; then the rest
// is waited for. At least one request each. Unary: a call a request. Stream: a stream for each of `in_flight`, on which
// a message is sent when the one before it was answered.
// The first call that is not answered OK ends the loop with its error; UNAVAILABLE when no server has said anything for
// 10 seconds.
absl::StatusOr<LoopResult> RunClosedLoop(const Target& target, int in_flight, absl::Duration duration);

struct OpenLoopOptions {
  double per_second = 0;
  absl::Duration duration;
  // So many at most are under way. What is due then is sent late; what is not sent by the end is not sent at all.
  int max_in_flight = 256;
};

struct OpenLoopResult {
  int64_t sent = 0;
  int64_t answered = 0;  // OK within `duration`
  int64_t refused = 0;   // RESOURCE_EXHAUSTED
};

// An open loop of unary calls, sent at the times that a rate gives, whether or not those before them were answered. An
// error other than RESOURCE_EXHAUSTED ends the loop, as does a silence of 10 seconds.
absl::StatusOr<OpenLoopResult> RunOpenLoop(const Target& target, const OpenLoopOptions& options);

absl::Status WithContext(const absl::Status& status, const std::string& context);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_DRIVER_H_

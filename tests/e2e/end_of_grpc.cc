#include <grpc/grpc.h>

#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace normd {
namespace {

// Ends gRPC before the process ends. The last object of gRPC may die on one of gRPC's own threads, which leaves the
// joining of its threads to yet another one; where main returned meanwhile, TSan reported threads that nobody had
// joined.
class EndOfGrpc : public testing::Environment {
 public:
  void SetUp() override { grpc_init(); }

  void TearDown() override {
    grpc_shutdown_blocking();
    // A connection that is still being made holds gRPC for up to 20 s. Until then gRPC does not begin to end, so that
    // there is no joining to wait for.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    while (grpc_is_initialized() != 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

const testing::Environment* const kEndOfGrpc = testing::AddGlobalTestEnvironment(new EndOfGrpc);

}  // namespace
}  // namespace normd

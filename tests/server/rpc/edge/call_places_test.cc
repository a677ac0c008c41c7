#include "server/rpc/edge/call_places.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/errors.h"
#include "server/rpc/edge/transport_options.h"

namespace normd::rpc {
namespace {

class CallPlacesTest : public testing::Test {
 protected:
  // Takes up to `count` places, and returns how many there were; `error_` says why there were no more.
  int Take(const Connection& connection, int count) {
    for (int taken = 0; taken < count; ++taken) {
      CallPlace place;
      error_ = places_.Take(connection, &place);
      if (!error_.ok()) return taken;
      taken_.push_back(std::move(place));
    }
    return count;
  }
  std::string ErrorField() const {
    const std::optional<ErrorDetail> detail = GetErrorDetail(error_);
    return detail.has_value() ? detail->field : "";
  }

  const Connection a_{{.address = "a"}}, b_{{.address = "b"}}, c_{{.address = "c"}};
  const Connection local_{{.address = "uid 0", .is_unix = true}};
  CallPlaces places_{{.max_calls = 32, .max_calls_per_peer = 16, .kept_for_unix = 2}};
  std::vector<CallPlace> taken_;
  absl::Status error_;
};

TEST_F(CallPlacesTest, OnePeerHasHalf) {
  EXPECT_EQ(Take(a_, 100), 16);
  EXPECT_TRUE(absl::IsResourceExhausted(error_));
  EXPECT_EQ(ErrorField(), "calls_of_peer");
  EXPECT_EQ(error_.message(),
            "calls_of_peer would be 17, over the limit of 16, until other calls are done; nothing was changed");
  EXPECT_EQ(Take(b_, 5), 5);
}

TEST_F(CallPlacesTest, SomeAreKeptForTheUnixSocket) {
  EXPECT_EQ(Take(a_, 16), 16);
  EXPECT_EQ(Take(b_, 16), 14);
  EXPECT_EQ(ErrorField(), "calls");
  EXPECT_EQ(Take(c_, 1), 0);
  EXPECT_EQ(Take(local_, 4), 2);
  EXPECT_EQ(ErrorField(), "calls");
}

// A refused call must not count, or refusals would lock others out.
TEST_F(CallPlacesTest, APlaceThatIsGivenBackAndARefusalCountNothing) {
  EXPECT_EQ(Take(a_, 100), 16);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Take(a_, 1), 0);
  EXPECT_EQ(places_.held(), 16);
  taken_.resize(10);
  EXPECT_EQ(places_.held(), 10);
  EXPECT_EQ(a_.peer_calls().held, 10);
  EXPECT_EQ(Take(a_, 100), 6);
}

TEST_F(CallPlacesTest, SaysWhenThereAreMany) {
  Take(a_, 12);
  EXPECT_FALSE(places_.TakeCrowded());
  Take(a_, 1);
  EXPECT_TRUE(places_.TakeCrowded()) << "three quarters of the peer's";
  EXPECT_FALSE(places_.TakeCrowded()) << "nothing has come since";
  taken_.clear();
  Take(a_, 8);
  Take(b_, 8);
  Take(c_, 8);
  EXPECT_FALSE(places_.TakeCrowded());
  Take(local_, 1);
  EXPECT_TRUE(places_.TakeCrowded()) << "three quarters of all";
}

TEST(TransportOptionsTest, KeepsSomeCallsAndConnectionsFree) {
  const DispatchLimits calls = LimitsOfCalls({.max_in_flight_bytes = int64_t{288} << 20});
  EXPECT_EQ(calls.calls.max_calls, 18'432);
  EXPECT_EQ(calls.calls.max_calls_per_peer, 9'216);
  EXPECT_EQ(calls.calls.kept_for_unix, 1'152);
  EXPECT_EQ(LimitsOfConnections({.max_connections = 320}).kept, 20);
  EXPECT_EQ(LimitsOfConnections({.max_connections = 100}).kept, 16);
  EXPECT_EQ(LimitsOfConnections({.max_connections = 8}).kept, 2);
  EXPECT_EQ(LimitsOfConnections({.max_connections = 1}).kept, 0);
}

}  // namespace
}  // namespace normd::rpc

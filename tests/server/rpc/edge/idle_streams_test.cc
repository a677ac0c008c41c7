#include "server/rpc/edge/idle_streams.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/server/rpc/edge/silent_call.h"

namespace normd::rpc {
namespace {

// Streams of several peers.
class IdleStreamsTest : public testing::Test {
 protected:
  // One more stream of `address`, which waits for a message, or does something else.
  void Open(const std::string& address, bool waits = true) {
    ConnectionPtr& connection = connections_[address];
    if (connection == nullptr) connection = std::make_shared<Connection>(Connection::Facts{.address = address});
    std::shared_ptr<RpcCall> stream =
        SilentCall::Make({.live = &live_, .connections = &table_}, connection, SilentCall::Reads::kWait);
    CallPlace place;
    ASSERT_TRUE(places_.Take(*connection, &place).ok());
    stream->KeepPlace(std::move(place));
    std::vector<std::shared_ptr<RpcCall>>& streams = streams_[address];
    if (waits) stream->Read([&ended = ended_[address], i = streams.size()](auto) { ended.push_back(i); });
    streams.push_back(std::move(stream));
  }
  void Open(const std::string& address, int count, bool waits = true) {
    for (int i = 0; i < count; ++i) Open(address, waits);
  }
  ~IdleStreamsTest() override { streams_.clear(); }

  LiveCalls live_;
  ConnectionTable table_{{.max_connections = 1, .max_per_address = 1}};
  CallPlaces places_{{.max_calls = 64, .max_calls_per_peer = 32, .kept_for_unix = 4}};
  IdleStreams idle_{&places_, &live_};
  std::map<std::string, ConnectionPtr> connections_;
  std::map<std::string, std::vector<std::shared_ptr<RpcCall>>> streams_;
  std::map<std::string, std::vector<size_t>> ended_;  // the numbers of a peer's streams
};

TEST_F(IdleStreamsTest, FewMayWaitForEver) {
  Open("a", 24);
  Open("b", 24);
  idle_.Look();
  EXPECT_TRUE(ended_["a"].empty());
  EXPECT_TRUE(ended_["b"].empty());
}

TEST_F(IdleStreamsTest, EndsThoseOfOnePeerThatHaveWaitedLongest) {
  Open("other", 10);
  Open("a", 25);
  idle_.Look();
  EXPECT_EQ(ended_["a"], std::vector<size_t>({0, 1, 2}));
  EXPECT_TRUE(ended_["other"].empty()) << "it has waited longer, but has few";
  EXPECT_EQ(idle_.ended(), 3);
  const absl::Status why = streams_["a"][0]->read_error();
  EXPECT_TRUE(absl::IsResourceExhausted(why));
  EXPECT_EQ(why.message(),
            "calls_of_peer is 25, over three quarters of the limit of 32, so the streams that have waited longest for "
            "a message are ended; open one again when there is a message to send");
  EXPECT_TRUE(streams_["a"][3]->read_error().ok());
}

TEST_F(IdleStreamsTest, LeavesActiveStreamsAlone) {
  Open("a", 24, /*waits=*/false);
  Open("a", 2);
  idle_.Look();
  EXPECT_EQ(ended_["a"], std::vector<size_t>({24, 25}));
}

TEST_F(IdleStreamsTest, WhereThereAreTooManyInAllThePeersWithMostGiveWay) {
  Open("few", 5);
  Open("more", 20);
  Open("most", 24);
  idle_.Look();
  EXPECT_TRUE(ended_["few"].empty());
  // Of 49 are 44 left: the two with most have 20 and 19 then.
  EXPECT_EQ(ended_["more"].size() + ended_["most"].size(), 5U);
  EXPECT_GE(ended_["most"].size(), 4U);
  EXPECT_EQ(ended_["most"].front(), 0U);
  EXPECT_NE(streams_["most"][0]->read_error().message().find("calls is 49"), std::string::npos);
}

TEST_F(IdleStreamsTest, AStreamWaitsFromItsReadToItsEnd) {
  Open("a");
  RpcCall& stream = *streams_["a"][0];
  const int64_t since = stream.waiting_since();
  EXPECT_GT(since, 0);
  stream.EndReading(absl::UnavailableError("enough"));
  EXPECT_EQ(stream.waiting_since(), 0);
}

}  // namespace
}  // namespace normd::rpc

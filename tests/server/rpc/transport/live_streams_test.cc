#include "server/rpc/transport/live_streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/rpc/transport/stream.h"

namespace normd::rpc {
namespace {

// A call of which nothing comes.
class SilentCall : public TransportCall {
 public:
  const std::string& method() const override { return method_; }
  void VisitMetadata(absl::FunctionRef<void(std::string_view, std::string_view)> /*visit*/) const override {}
  absl::Time deadline() const override { return absl::InfiniteFuture(); }
  const ConnectionPtr& connection() const override { return connection_; }
  const net::TlsPeerPtr& tls_peer() const override { return tls_peer_; }
  // Drops the callback, with the stream in it.
  void OnOver(OnDone /*on_done*/) override {}
  void ReadSize(OnSize on_size) override { on_size(std::nullopt); }
  void Read(OnRead on_read) override { on_read(std::nullopt); }
  void ReadHead(OnRead on_read) override { on_read(std::nullopt); }
  void Write(MessageBytes /*message*/, Callback written) override { written(); }
  void Finish(RpcStatus /*status*/, Trailers /*trailers*/, Callback written) override { written(); }
  void WriteAndFinish(MessageBytes /*message*/, RpcStatus /*status*/, Trailers /*trailers*/,
                      Callback written) override {
    written();
  }
  void Cancel() override {}

 private:
  const std::string method_;
  const ConnectionPtr connection_ = std::make_shared<Connection>(Connection::Facts());
  const net::TlsPeerPtr tls_peer_ = std::make_shared<net::TlsPeer>();
};

std::shared_ptr<Stream> MakeStream(const StreamHost& host) {
  return Stream::Make(host, std::make_unique<SilentCall>());
}

// Whoever looks at the streams reads members of each: memory that was used before must not be taken for a stream.
// The sanitizers see it best.
TEST(LiveStreamsTest, AStreamIsFoundOnlyWhenItIsWhole) {
  LiveStreams live;
  ConnectionTable connections({.max_connections = 1, .max_per_address = 1});
  const StreamHost host = {.live = &live, .connections = &connections};
  std::atomic<bool> ending = false;
  std::atomic<int> found = 0;
  std::thread looker([&] {
    while (!ending) {
      found += static_cast<int>(live.Collect([](const Stream& s) { return s.in_progress() || s.cancelled(); }).size());
    }
  });
  for (int i = 0; i < 20'000; ++i) MakeStream(host);
  ending = true;
  looker.join();
  EXPECT_EQ(found, 0);
  live.WaitForNone();
}

TEST(LiveStreamsTest, FindsTheStreamsThatAreWanted) {
  LiveStreams live;
  ConnectionTable connections({.max_connections = 1, .max_per_address = 1});
  const std::shared_ptr<Stream> stream = MakeStream({.live = &live, .connections = &connections});
  EXPECT_EQ(live.Collect([](const Stream&) { return true; }).size(), 1U);
  EXPECT_TRUE(live.Collect([](const Stream&) { return false; }).empty());
}

}  // namespace
}  // namespace normd::rpc

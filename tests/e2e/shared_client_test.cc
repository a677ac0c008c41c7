// ClientOptions::shared_memory: callers see no difference, whatever happens to the memory.

#include "tests/e2e/shared_server.h"

namespace normd::e2e {
namespace {

constexpr int kRows = 64;  // 256 KiB

std::unique_ptr<Client> SharingClient(const std::string& target, absl::Duration deadline = absl::Seconds(30)) {
  return Client::Connect(target, {.deadline = deadline, .shared_memory = true}).value();
}

std::string YOf(const absl::StatusOr<v1::NormalizeResponse>& response) {
  EXPECT_TRUE(response.ok()) << response.status();
  return response.ok() ? response->outputs(0).tensor().data() : "";
}

TEST(SharedClientTest, GivesTheResponsesOfAClientThatSends) {
  SharedServer server;
  const std::unique_ptr<Client> sending = server.NewClient(), sharing = SharingClient(server.target());
  for (const int rows : {1, 15, 16, kRows}) {
    v1::NormalizeRequest request = LargeRequest(rows);
    for (const bool with_outputs : {false, true}) {
      if (with_outputs) {
        *request.mutable_residual()->mutable_tensor() = request.x();
        for (int kind = v1::OUTPUT_KIND_MOMENTS; kind >= v1::OUTPUT_KIND_Y; --kind) {
          request.add_outputs()->set_kind(static_cast<v1::OutputKind>(kind));
        }
      }
      const std::string before = request.SerializeAsString();
      EXPECT_TRUE(sharing->Normalize(request)->SerializeAsString() == sending->Normalize(request)->SerializeAsString());
      EXPECT_TRUE(request.SerializeAsString() == before);
    }
    EXPECT_EQ(server.table().stats().regions, rows < 16 ? 0 : 1) << "from 64 KiB on";
  }
}

TEST(SharedClientTest, GivesTheErrorsOfAClientThatSends) {
  SharedServer server;
  const std::unique_ptr<Client> sending = server.NewClient(), sharing = SharingClient(server.target());
  const std::function<void(v1::NormalizeRequest&)> mistakes[] = {
      [](auto& r) { r.mutable_x()->set_shape(0, kRows - 1); },
      [](auto& r) { r.mutable_x()->set_dtype(v1::DTYPE_UNSPECIFIED); },
      [](auto& r) { r.set_session("sessions/nobody"); },
      [](auto& r) { r.mutable_spec()->mutable_rms_norm()->set_eps(-1); },
      [](auto& r) { r.add_outputs()->set_kind(v1::OUTPUT_KIND_H); },
      [](auto& r) { r.add_outputs(); },
      [](auto& r) { *r.mutable_residual()->mutable_tensor() = LargeRequest(kRows - 1).x(); }};
  for (const auto& make : mistakes) {
    v1::NormalizeRequest request = LargeRequest(kRows);
    make(request);
    const absl::Status want = sending->Normalize(request).status();
    ASSERT_FALSE(want.ok());
    const absl::Status got = sharing->Normalize(request).status();
    EXPECT_EQ(got.code(), want.code());
    EXPECT_EQ(got.message(), want.message());
  }
}

TEST(SharedClientTest, SendsWhereThereIsNoSharedMemory) {
  SharedServer without(/*with_registrar=*/false);
  SharedServer with;
  const std::string y = YOf(with.NewClient()->Normalize(LargeRequest(kRows)));
  for (const std::string& target : {without.target(), without.tcp_target(), with.tcp_target()}) {
    const std::unique_ptr<Client> client = SharingClient(target);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(YOf(client->Normalize(LargeRequest(kRows))) == y);
    EXPECT_FALSE(client->AllocateShared(64).ok());
  }
}

TEST(SharedClientTest, SendsWhatTheServerHasNoRoomFor) {
  TemporaryFolder folder;
  RegionLimits limits;
  limits.max_regions = 1;
  RegionTable table(limits);
  auto registrar = Registrar::Start({.socket_path = folder.path() + "/s.shm"}, &table).value();
  RpcOptions options;
  options.listeners = {"unix:" + folder.path() + "/s"};
  options.regions = &table;
  TestServer server(std::move(options));
  const std::unique_ptr<Client> first = SharingClient(server.target()), second = SharingClient(server.target());
  const std::string y = YOf(first->Normalize(LargeRequest(kRows)));
  EXPECT_TRUE(YOf(second->Normalize(LargeRequest(kRows))) == y);
  EXPECT_EQ(second->AllocateShared(64).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SharedClientTest, SurvivesARestartOfTheServer) {
  SharedServer server;
  const std::unique_ptr<Client> client = SharingClient(server.target());
  const std::string y = YOf(client->Normalize(LargeRequest(kRows)));
  const client::SharedBlock old = client->AllocateShared(4096).value();
  server.Stop();
  server.Start();
  EXPECT_TRUE(YOf(client->Normalize(LargeRequest(kRows))) == y);
  EXPECT_FALSE(old.registered());
  v1::NormalizeRequest request = LargeRequest(1);
  client::SetShared(old, request.mutable_x());
  EXPECT_TRUE(client::IsRegionLost(client->Normalize(request).status()));
  EXPECT_TRUE(client->AllocateShared(4096)->registered());
  // And shares again, with a new region beside that of AllocateShared.
  EXPECT_TRUE(Eventually(
      [&] { return YOf(client->Normalize(LargeRequest(kRows))) == y && server.table().stats().regions == 2; }));
}

// The server knows the region no more, but the client cannot see that before it has sent.
TEST(SharedClientTest, SendsAgainInlineWhenTheRegionIsLostOnTheWay) {
  if (TestedTransport() == TransportKind::kNative) {
    GTEST_SKIP() << "the native transport closes its connections at once, so the second try comes before the server is "
                    "back; gRPC's closes them when the kernel is done";
  }
  SharedServer server;
  const std::unique_ptr<Client> client = SharingClient(server.target());
  const std::string y = YOf(client->Normalize(LargeRequest(kRows)));
  server.server().backend().Close();
  std::thread call([&] { EXPECT_TRUE(YOf(client->Normalize(LargeRequest(kRows))) == y); });
  server.server().backend().WaitForSubmitted(2);
  std::thread opener([&] {
    // Once the grace is over the call is cancelled; the kernel runs on for ever, as far as the client can tell.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    server.server().backend().Open();
  });
  server.server().server().Shutdown(absl::ZeroDuration());
  opener.join();
  server.Stop();
  server.Start();
  call.join();
}

// The call ends with its deadline while the kernel has yet to write: what it writes then must not meet later calls.
TEST(SharedClientTest, ALateWriteMeetsNoLaterCall) {
  SharedServer server;
  const std::unique_ptr<Client> client = SharingClient(server.target(), absl::Seconds(2));
  const v1::NormalizeRequest late = LargeRequest(kRows);
  v1::NormalizeRequest next = LargeRequest(kRows);
  next.mutable_spec()->mutable_scale_norm();
  const std::string y = YOf(client->Normalize(next));
  server.server().backend().Close();
  EXPECT_EQ(client->Normalize(late).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(server.table().stats().regions, 1) << "in use";
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the client asks for a new region again
  std::thread calls([&] {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(YOf(client->Normalize(next)) == y);
  });
  server.server().backend().WaitForSubmitted(3);
  EXPECT_EQ(server.table().stats().regions, 2) << "one of them is new";
  server.server().backend().Open();  // newest first: the late one writes last
  calls.join();
  EXPECT_TRUE(Eventually([&] { return server.table().stats().regions == 1; }));
}

TEST(SharedClientTest, IsSafeFromSeveralThreads) {
  SharedServer server;
  const std::unique_ptr<Client> sending = server.NewClient(), sharing = SharingClient(server.target());
  std::vector<std::string> want;
  for (int i = 0; i < 4; ++i) want.push_back(YOf(sending->Normalize(LargeRequest(kRows + i))));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int call = 0; call < 30; ++call) EXPECT_TRUE(YOf(sharing->Normalize(LargeRequest(kRows + i))) == want[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SharedClientTest, NeverSendsARequestAgainWhoseYReplacesX) {
  v1::NormalizeRequest request = LargeRequest(1);
  v1::SharedRange* const x = request.mutable_x()->mutable_shared();
  x->set_region("r");
  x->set_size_bytes(4096);
  EXPECT_TRUE(client::IsSafeToRetry(request));
  *request.add_outputs()->mutable_shared() = *x;
  EXPECT_FALSE(client::IsSafeToRetry(request));
  request.mutable_outputs(0)->mutable_shared()->set_offset(4096);
  EXPECT_TRUE(client::IsSafeToRetry(request));
}

}  // namespace
}  // namespace normd::e2e

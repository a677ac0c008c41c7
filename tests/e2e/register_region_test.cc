// SharedMemory/RegisterRegion: regions by POSIX name, as long as their call.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>

#include "absl/time/clock.h"
#include "client/cpp/shared_region.h"
#include "normd/v1/shared_memory.grpc.pb.h"
#include "tests/e2e/shared_server.h"

namespace normd::e2e {
namespace {

constexpr size_t kBytes = 1 << 20;

// A POSIX object, mapped here, that goes with the test.
class PosixMemory {
 public:
  explicit PosixMemory(const std::string& prefix) : name_(prefix + "test-" + std::to_string(getpid())) {
    descriptor_ = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    Resize(kBytes);
    data_ = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0));
  }
  ~PosixMemory() {
    munmap(data_, kBytes);
    close(descriptor_);
    shm_unlink(name_.c_str());
  }
  void Resize(size_t bytes) const { EXPECT_EQ(ftruncate(descriptor_, static_cast<off_t>(bytes)), 0); }
  const std::string& name() const { return name_; }
  char* data() const { return data_; }

 private:
  const std::string name_;
  int descriptor_ = -1;
  char* data_ = nullptr;
};

// One RegisterRegion call.
class Registration {
 public:
  Registration(const std::string& target, const std::string& name, uint64_t size_bytes)
      : stub_(v1::SharedMemory::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()))) {
    v1::RegisterRegionRequest request;
    request.set_posix_name(name);
    request.set_size_bytes(size_bytes);
    call_ = stub_->RegisterRegion(&context_, request);
    v1::RegisterRegionResponse response;
    if (call_->Read(&response)) region_ = response.region();
  }
  ~Registration() {
    context_.TryCancel();
    Finish();
  }
  const std::string& region() const { return region_; }  // empty: refused
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish() {
    if (finished_) return status_;
    v1::RegisterRegionResponse more;
    EXPECT_FALSE(call_->Read(&more));
    finished_ = true;
    return status_ = call_->Finish();
  }

 private:
  const std::unique_ptr<v1::SharedMemory::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::RegisterRegionResponse>> call_;
  std::string region_;
  bool finished_ = false;
  grpc::Status status_;
};

// x at the start of the region, y in its second half.
v1::NormalizeRequest RequestIn(const std::string& region, const v1::NormalizeRequest& sent, char* memory) {
  const std::string& x = sent.x().data();
  std::memcpy(memory, x.data(), x.size());
  v1::NormalizeRequest request = sent;
  v1::SharedRange* range = request.mutable_x()->mutable_shared();
  range->set_region(region);
  range->set_size_bytes(x.size());
  v1::OutputRequest* const output = request.add_outputs();
  output->set_kind(v1::OUTPUT_KIND_Y);
  *output->mutable_shared() = *range;
  output->mutable_shared()->set_offset(kBytes / 2);
  return request;
}

TEST(RegisterRegionTest, ServesARegionAsLongAsItsCall) {
  SharedServer server;
  const PosixMemory memory("/normd-");
  const v1::NormalizeRequest sent = LargeRequest(16);
  v1::NormalizeResponse want, got;
  ASSERT_TRUE(server.server().Normalize(sent, &want).ok());
  Registration registration(server.target(), memory.name(), kBytes);
  ASSERT_NE(registration.region(), "") << registration.Finish().error_message();
  const v1::NormalizeRequest request = RequestIn(registration.region(), sent, memory.data());
  const grpc::Status status = server.server().Normalize(request, &got);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const std::string& y = want.outputs(0).tensor().data();
  EXPECT_EQ(std::memcmp(memory.data() + kBytes / 2, y.data(), y.size()), 0);
  registration.Cancel();
  EXPECT_EQ(registration.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return server.table().stats().regions == 0; }));
  EXPECT_EQ(server.server().Normalize(request, &got).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(RegisterRegionTest, RefusesOtherNamesSizesAndCallersAndDoesNotEchoThem) {
  SharedServer server;
  const PosixMemory memory("/normd-"), other("/secret-");
  struct Refused {
    std::string target, name, field;
    uint64_t size_bytes;
    grpc::StatusCode code;
  };
  const std::vector<Refused> all = {
      {server.target(), other.name(), "posix_name", kBytes, grpc::StatusCode::INVALID_ARGUMENT},
      {server.target(), "/normd-secret-missing", "posix_name", kBytes, grpc::StatusCode::NOT_FOUND},
      {server.target(), "/normd-/../secret", "posix_name", kBytes, grpc::StatusCode::INVALID_ARGUMENT},
      {server.target(), memory.name(), "size_bytes", 0, grpc::StatusCode::INVALID_ARGUMENT},
      {server.target(), memory.name(), "size_bytes", kBytes + 4097, grpc::StatusCode::INVALID_ARGUMENT},
      {server.target(), memory.name(), "size_bytes", ~uint64_t{0}, grpc::StatusCode::INVALID_ARGUMENT},
      {server.tcp_target(), memory.name(), "posix_name", kBytes, grpc::StatusCode::INVALID_ARGUMENT}};
  for (const Refused& refused : all) {
    Registration registration(refused.target, refused.name, refused.size_bytes);
    EXPECT_EQ(registration.region(), "");
    const grpc::Status status = registration.Finish();
    EXPECT_EQ(status.error_code(), refused.code) << status.error_message();
    const auto info = Detail<google::rpc::ErrorInfo>(DetailsOf(status));
    ASSERT_TRUE(info.has_value()) << status.error_message();
    EXPECT_EQ(info->metadata().at("field"), refused.field);
    EXPECT_EQ((status.error_message() + status.error_details()).find("secret"), std::string::npos);
  }
  EXPECT_EQ(server.table().stats().regions, 0);
  SharedServer anywhere(true, true);
  EXPECT_NE(Registration(anywhere.tcp_target(), memory.name(), kBytes).region(), "");
}

TEST(RegisterRegionTest, DoesNotHoldUpAShutdownAndKeepsItsRegionForRequestsUnderWay) {
  SharedServer server;
  const PosixMemory memory("/normd-");
  Registration registration(server.target(), memory.name(), kBytes);
  server.server().backend().Close();
  std::thread call([&] {
    v1::NormalizeResponse response;
    const auto request = RequestIn(registration.region(), LargeRequest(1), memory.data());
    EXPECT_TRUE(server.server().Normalize(request, &response).ok());
  });
  server.server().backend().WaitForSubmitted(1);
  const absl::Time begin = absl::Now();
  std::thread opener([&] {
    EXPECT_EQ(registration.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(server.table().stats().regions, 1);
    server.server().backend().Open();
  });
  server.server().server().Shutdown(absl::Seconds(60));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30)) << "a registration held up the shutdown";
  opener.join();
  call.join();
}

TEST(RegisterRegionTest, ATruncatedRegionFailsItsRequestsAndNotTheServer) {
  SharedServer server;
  const PosixMemory memory("/normd-");
  Registration registration(server.target(), memory.name(), kBytes);
  const v1::NormalizeRequest request = RequestIn(registration.region(), LargeRequest(64), memory.data());
  std::atomic<bool> done = false;
  std::thread cutter([&] {
    server.server().backend().WaitForSubmitted(20);
    memory.Resize(4096);
    done = true;
  });
  grpc::Status status;
  v1::NormalizeResponse response;
  while (status.ok()) status = server.server().Normalize(request, &response);
  cutter.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << status.error_message();
  EXPECT_EQ(ReasonOf(status), "REGION_TRUNCATED");
  server.server().ExpectAlive();
}

// Under the gate, so that the cut is between the check and the kernel.
TEST(RegisterRegionTest, ARegionCutOffUnderTheKernelIsSeenAfterwards) {
  SharedServer server;
  const PosixMemory memory("/normd-");
  Registration registration(server.target(), memory.name(), kBytes);
  const v1::NormalizeRequest request = RequestIn(registration.region(), LargeRequest(64), memory.data());
  server.server().backend().Close();
  std::thread call([&] {
    v1::NormalizeResponse response;
    const grpc::Status status = server.server().Normalize(request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << status.error_message();
  });
  server.server().backend().WaitForSubmitted(1);
  memory.Resize(4096);
  server.server().backend().Open();
  call.join();
  server.server().ExpectAlive();
}

// The registrar's kind of region: its owner is killed, not asked.
TEST(RegisterRegionTest, TheRegionsOfAProcessThatIsKilledGo) {
  TemporaryFolder folder;
  RegionTable table{RegionLimits()};
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  const std::string target = "unix:" + folder.path() + "/s";
  const pid_t child = fork();  // before there are threads
  if (child == 0) {
    char go = 0;
    if (read(ends[0], &go, 1) != 1) _exit(1);
    const auto region = client::SharedRegion::Create(target, 4096);
    while (region.ok()) pause();
    _exit(1);
  }
  auto registrar = Registrar::Start({.socket_path = folder.path() + "/s.shm"}, &table).value();
  ASSERT_EQ(write(ends[1], "g", 1), 1);
  EXPECT_TRUE(Eventually([&] { return table.stats().regions == 1; }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return table.stats().regions == 0; }));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace normd::e2e

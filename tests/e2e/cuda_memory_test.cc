// Tensors in CUDA memory from the client to the backend and back: they are read and written where they are, and nothing
// on the host follows their addresses (the fake's cannot be accessed).
#include <gmock/gmock.h>

#include <cstring>
#include <functional>

#include "tests/e2e/cuda_server.h"
#include "tests/e2e/shared_server.h"

namespace normd::e2e {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kBytes = 1 << 16;
constexpr uint64_t kPlace = 4096;  // a tensor's place in the region is a multiple

class CudaMemoryEndToEnd : public ::testing::Test {
 protected:
  void SetUp() override { region_ = client_->RegisterCuda(Memory()).value(); }

  client::CudaMemory Memory() const {
    return {.ipc_handle = handle_, .device = CudaServer::kDevice, .offset = 512, .size_bytes = kBytes - 512};
  }
  std::byte* At(uint64_t place) { return server_.cuda().Owned(handle_) + 512 + place * kPlace; }
  std::string BytesAt(uint64_t place, size_t size) { return {reinterpret_cast<const char*>(At(place)), size}; }
  // Moves a tensor's bytes to the device.
  void Move(uint64_t place, v1::Tensor* tensor) {
    const size_t size = tensor->data().size();
    std::memcpy(At(place), tensor->data().data(), size);
    client::SetShared({region_.get(), place * kPlace, size}, tensor);
  }
  void AddOutput(uint64_t place, v1::OutputKind kind, uint64_t size, v1::NormalizeRequest* request) {
    v1::OutputRequest* const output = request->add_outputs();
    output->set_kind(kind);
    client::SetShared({region_.get(), place * kPlace, size}, output);
  }
  absl::Status StatusOf(const v1::NormalizeRequest& request) { return client_->Normalize(request).status(); }

  CudaServer server_;
  const std::string handle_ = server_.cuda().Allocate(kBytes);
  const std::unique_ptr<Client> client_ = server_.NewClient();
  std::unique_ptr<client::CudaRegion> region_;
};

TEST_F(CudaMemoryEndToEnd, XAndYNeverLeaveTheDevice) {
  v1::NormalizeRequest request = LayerNormRequest(3);
  const v1::NormalizeResponse want = client_->Normalize(request).value();
  Move(0, request.mutable_x());
  AddOutput(1, v1::OUTPUT_KIND_Y, 48, &request);
  EXPECT_THAT(server_.backend().TakeJobs(), IsEmpty()) << "the host's tensors stay on the CPU";
  const absl::StatusOr<v1::NormalizeResponse> got = client_->Normalize(request);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(BytesAt(1, 48) == want.outputs(0).tensor().data());
  EXPECT_FALSE(got->outputs(0).tensor().has_data());
  EXPECT_EQ(got->outputs(0).tensor().shared().offset(), kPlace);
  EXPECT_EQ(got->applied().device(), v1::DEVICE_CUDA);
  EXPECT_THAT(server_.backend().TakeJobs(), ElementsAre("x y, device 1"));
}

// The code of client/README.md without its calls of CUDA.
TEST_F(CudaMemoryEndToEnd, TheExampleOfTheReadmeWorks) {
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_.target());
  v1::NormalizeRequest request = LayerNormRequest(3);
  const v1::NormalizeResponse want = (*client)->Normalize(request).value();
  const uint64_t bytes = request.x().data().size();
  const std::string handle = server_.cuda().Allocate(2 * static_cast<int64_t>(bytes));
  std::byte* const memory = server_.cuda().Owned(handle);
  std::memcpy(memory, request.x().data().data(), bytes);

  const std::unique_ptr<normd::client::CudaRegion> region =
      (*client)->RegisterCuda({.ipc_handle = handle, .device = 1, .size_bytes = 2 * bytes}).value();
  normd::client::SetShared({region.get(), 0, bytes}, request.mutable_x());
  normd::v1::OutputRequest* output = request.add_outputs();
  output->set_kind(normd::v1::OUTPUT_KIND_Y);
  normd::client::SetShared({region.get(), bytes, bytes}, output);
  EXPECT_TRUE((*client)->Normalize(request).ok());

  EXPECT_EQ(std::memcmp(memory + bytes, want.outputs(0).tensor().data().data(), bytes), 0);
}

TEST_F(CudaMemoryEndToEnd, ResidualAndHMayLieThereAndStatisticsComeBack) {
  v1::NormalizeRequest request = LayerNormRequest(3);
  *request.mutable_residual()->mutable_tensor() = request.x();
  for (const auto kind : {v1::OUTPUT_KIND_Y, v1::OUTPUT_KIND_H, v1::OUTPUT_KIND_MEAN, v1::OUTPUT_KIND_MOMENTS}) {
    request.add_outputs()->set_kind(kind);
  }
  const v1::NormalizeResponse want = client_->Normalize(request).value();
  Move(0, request.mutable_x());
  Move(1, request.mutable_residual()->mutable_tensor());
  client::SetShared({region_.get(), 2 * kPlace, 48}, request.mutable_outputs(0));
  client::SetShared({region_.get(), 3 * kPlace, 48}, request.mutable_outputs(1));
  EXPECT_THAT(server_.backend().TakeJobs(), IsEmpty()) << "the host's tensors stay on the CPU";
  const absl::StatusOr<v1::NormalizeResponse> got = client_->Normalize(request);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(BytesAt(2, 48) == want.outputs(0).tensor().data());
  EXPECT_TRUE(BytesAt(3, 48) == want.outputs(1).tensor().data());
  for (const int i : {2, 3}) EXPECT_EQ(got->outputs(i).SerializeAsString(), want.outputs(i).SerializeAsString());
  EXPECT_THAT(server_.backend().TakeJobs(), ElementsAre("x residual y h, device 1"));
}

TEST_F(CudaMemoryEndToEnd, ItemsOfBatchesCallsOfStreamsAndMomentsMayLieThere) {
  v1::NormalizeRequest request = LayerNormRequest(3);
  const v1::NormalizeResponse want = client_->Normalize(request).value();
  v1::ComputeMomentsRequest reduce;
  *reduce.mutable_spec() = request.spec();
  *reduce.mutable_x() = request.x();
  const v1::ComputeMomentsResponse moments = client_->ComputeMoments(reduce).value();
  Move(0, request.mutable_x());
  AddOutput(1, v1::OUTPUT_KIND_Y, 48, &request);
  v1::BatchNormalizeRequest batch;
  *batch.add_items() = LayerNormRequest(2);
  *batch.add_items() = request;
  EXPECT_TRUE(client_->BatchNormalize(batch).value().items(1).has_response());
  EXPECT_TRUE(BytesAt(1, 48) == want.outputs(0).tensor().data());
  std::memset(At(1), 0, 48);
  const std::unique_ptr<NormalizeStream> stream = client_->OpenStream();
  v1::StreamRequest item;
  *item.mutable_call() = request;
  v1::StreamResponse response;
  ASSERT_TRUE(stream->Write(item) && stream->Read(&response));
  ASSERT_TRUE(response.has_reply()) << response.error().message();
  EXPECT_TRUE(BytesAt(1, 48) == want.outputs(0).tensor().data());
  EXPECT_TRUE(stream->Finish().ok());
  *reduce.mutable_x() = request.x();
  EXPECT_EQ(client_->ComputeMoments(reduce).value().moments().SerializeAsString(),
            moments.moments().SerializeAsString());
}

TEST_F(CudaMemoryEndToEnd, ATrainingStepOnASessionReadsXThere) {
  v1::CreateSessionRequest create;
  create.set_session_id("bn");
  create.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  create.mutable_session()->set_num_channels(4);
  ASSERT_TRUE(client_->CreateSession(create).ok());
  v1::NormalizeRequest request = LayerNormRequest(3);
  request.set_session("sessions/bn");
  request.set_mode(v1::MODE_TRAINING);
  Move(0, request.mutable_x());
  AddOutput(1, v1::OUTPUT_KIND_Y, 48, &request);
  const absl::StatusOr<v1::NormalizeResponse> got = client_->Normalize(request);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(got->state().applied());
}

TEST_F(CudaMemoryEndToEnd, EmptyTensorsLieNowhere) {
  v1::NormalizeRequest request = LayerNormRequest(1);
  request.mutable_x()->set_shape(0, 0);
  client::SetShared({region_.get(), 0, 0}, request.mutable_x());
  AddOutput(1, v1::OUTPUT_KIND_Y, 0, &request);
  EXPECT_TRUE(StatusOf(request).ok()) << StatusOf(request);
}

// What the host reads or writes is refused there, by its field; the server goes on.
TEST_F(CudaMemoryEndToEnd, WhatTheHostReadsCannotLieThere) {
  const v1::SharedRange range = [this] {
    v1::Tensor tensor;
    client::SetShared({region_.get(), 0, 16}, &tensor);
    return tensor.shared();
  }();
  const auto parameter = [&range](v1::Tensor* tensor) {
    tensor->set_dtype(v1::DTYPE_F32);
    tensor->add_shape(4);
    *tensor->mutable_shared() = range;
  };
  const auto output = [&range](v1::NormalizeRequest& r, v1::OutputKind kind) {
    r.add_outputs()->set_kind(kind);
    *r.mutable_outputs(0)->mutable_shared() = range;
  };
  const std::vector<std::pair<std::string, std::function<void(v1::NormalizeRequest&)>>> all = {
      {"parameters.weight", [&](auto& r) { parameter(r.mutable_parameters()->mutable_weight()); }},
      {"parameters.bias", [&](auto& r) { parameter(r.mutable_parameters()->mutable_bias()); }},
      {"parameters.running_mean", [&](auto& r) { parameter(r.mutable_parameters()->mutable_running_mean()); }},
      {"parameters.running_var", [&](auto& r) { parameter(r.mutable_parameters()->mutable_running_var()); }},
      {"mask", [&](auto& r) { parameter(r.mutable_mask()); }},
      {"outputs[0]", [&](auto& r) { output(r, v1::OUTPUT_KIND_MEAN); }},
      {"outputs[0]", [&](auto& r) { output(r, v1::OUTPUT_KIND_INV_STD); }},
      {"outputs[0]", [&](auto& r) { output(r, v1::OUTPUT_KIND_MOMENTS); }}};
  for (const auto& [field, change] : all) {
    v1::NormalizeRequest request = LayerNormRequest(4);
    change(request);
    if (field == "mask") request.mutable_mask()->set_shape(0, 16);
    const absl::Status status = StatusOf(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field + ".shared lies in CUDA memory, where only"));
    EXPECT_EQ(client::GetErrorInfo(status)->reason, "IN_CUDA_MEMORY");
  }
  EXPECT_THAT(server_.backend().TakeJobs(), IsEmpty());
  EXPECT_TRUE(StatusOf(LayerNormRequest(4)).ok());
}

TEST_F(CudaMemoryEndToEnd, TheCpuCannotBeAskedForAndRangesEndWithTheRegion) {
  v1::NormalizeRequest request = LayerNormRequest(3);
  Move(0, request.mutable_x());
  request.set_device(v1::DEVICE_CPU);
  EXPECT_EQ(client::GetErrorInfo(StatusOf(request))->field, "device");
  request.set_device(v1::DEVICE_AUTO);
  request.mutable_x()->mutable_shared()->set_offset(kBytes - 512 - 47);
  EXPECT_EQ(client::GetErrorInfo(StatusOf(request))->field, "x.shared.size_bytes");
}

TEST_F(CudaMemoryEndToEnd, ARegionLastsAsLongAsItsObjectAndItsHandleIsOpenedOnce) {
  EXPECT_TRUE(region_->registered());
  std::unique_ptr<client::CudaRegion> again = client_->RegisterCuda(Memory()).value();
  EXPECT_NE(again->name(), region_->name());
  EXPECT_EQ(server_.cuda().opened(), 1);
  v1::NormalizeRequest request = LayerNormRequest(3);
  Move(0, request.mutable_x());
  region_.reset();
  EXPECT_TRUE(Eventually([&] { return server_.table().stats().regions == 1; }));
  EXPECT_EQ(server_.cuda().open_now(), 1);
  EXPECT_TRUE(client::IsRegionLost(StatusOf(request)));
  again.reset();
  EXPECT_TRUE(Eventually([&] { return server_.cuda().open_now() == 0; }));
  EXPECT_EQ(server_.table().stats().bytes, 0);
}

TEST_F(CudaMemoryEndToEnd, ARegionOutlivesItsClientAndNoticesTheServersEnd) {
  std::unique_ptr<Client> other = server_.NewClient();
  const std::unique_ptr<client::CudaRegion> region = other->RegisterCuda(Memory()).value();
  other.reset();
  EXPECT_TRUE(region->registered());
  server_.server().Shutdown(absl::Seconds(10));
  EXPECT_TRUE(Eventually([&] { return !region->registered(); }));
  EXPECT_FALSE(region->registered());
}

// ---- what cannot be registered

struct Refused {
  std::string field;
  std::string text;
  std::function<void(client::CudaMemory&)> change;
};

TEST_F(CudaMemoryEndToEnd, BadRegistrationsAreRefusedByField) {
  const int opened = server_.cuda().opened();
  const std::vector<Refused> all = {
      {"cuda.ipc_handle", "has 63 bytes; it must have 64 bytes", [](auto& m) { m.ipc_handle.resize(63); }},
      {"cuda.ipc_handle", "has 0 bytes; it must have 64 bytes", [](auto& m) { m.ipc_handle.clear(); }},
      {"cuda.device", "it must be a device that this server uses: 1", [](auto& m) { m.device = 0; }},
      {"cuda.offset", "the size of the allocation", [](auto& m) { m.offset = ~uint64_t{0}; }},
      {"size_bytes", "the rest of the allocation", [](auto& m) { m.offset = 513; }},
      {"size_bytes", "it must be 1 to", [](auto& m) { m.size_bytes = 0; }}};
  for (const Refused& refused : all) {
    client::CudaMemory memory = Memory();
    refused.change(memory);
    const absl::Status status = client_->RegisterCuda(memory).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(client::GetErrorInfo(status)->field, refused.field);
    EXPECT_THAT(std::string(status.message()), HasSubstr(refused.text));
  }
  EXPECT_EQ(server_.cuda().opened(), opened);
  EXPECT_EQ(server_.table().stats().regions, 1);
}

TEST_F(CudaMemoryEndToEnd, OneOfPosixNameAndCudaIsGiven) {
  v1::RegisterRegionRequest request;
  request.set_posix_name("/normd-x");
  request.set_size_bytes(1);
  request.mutable_cuda()->set_ipc_handle(handle_);
  const grpc::Status status = server_.Refusal(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(status), "cuda");
}

TEST_F(CudaMemoryEndToEnd, OverTcpAndWithoutSharedMemoryItIsRefused) {
  CudaServer off(/*shared_memory=*/false);
  const std::vector<std::string> targets = {server_.tcp_target(), off.target()};
  for (const std::string& target : targets) {
    const absl::Status status = Client::Connect(target).value()->RegisterCuda(Memory()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(client::GetErrorInfo(status)->field, "cuda");
  }
}

TEST_F(CudaMemoryEndToEnd, AServerWithoutCudaSaysSo) {
  SharedServer server;
  const absl::Status status = server.NewClient()->RegisterCuda(Memory()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(client::GetErrorInfo(status)->reason, "CUDA_NOT_AVAILABLE");
  server.server().ExpectAlive();
}

TEST_F(CudaMemoryEndToEnd, WithoutAServerTheWaitEnds) {
  const TemporaryFolder folder;
  const auto client = Client::Connect("unix:" + folder.path() + "/nobody", {.deadline = absl::Seconds(20)}).value();
  EXPECT_EQ(client->RegisterCuda(Memory()).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace normd::e2e

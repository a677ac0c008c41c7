// Requests that name ranges of shared memory: the bytes of inline calls, and every mistake by its field.
#include "tests/e2e/method_cases.h"
#include "tests/e2e/shared_server.h"

namespace normd::e2e {
namespace {

TEST(SharedMemoryTest, GivesTheBytesOfInlineCallsForEveryMethodAndDtype) {
  SharedServer server;
  const std::unique_ptr<Client> client = server.NewClient();
  for (const Case& base : OneCaseOfEachMethod()) {
    for (const DType dtype : kAllDTypes) {
      Case c = base;
      c.dtype = dtype;
      SCOPED_TRACE(c.Name());
      const NormPlan plan = PlanOf(c).value();
      v1::NormalizeRequest request = RequestOf(c, plan, MakeData(c, plan, 1));
      const std::string x_bytes = request.x().data();
      const auto want = client->Normalize(request);
      ASSERT_TRUE(want.ok()) << want.status();
      const client::SharedBlock x = MoveToBlock(*client, request.mutable_x());
      const client::SharedBlock y = AddSharedOutput(*client, v1::OUTPUT_KIND_Y, x_bytes.size(), &request);
      const auto got = client->Normalize(request);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_TRUE(BytesOf(y) == want->outputs(0).tensor().data());
      EXPECT_TRUE(BytesOf(x) == x_bytes) << "x was changed";
      EXPECT_EQ(got->outputs(0).tensor().shared().region(), y.region());
      client::SetShared(x, request.mutable_outputs(0));
      ASSERT_TRUE(client->Normalize(request).ok());
      EXPECT_TRUE(BytesOf(x) == want->outputs(0).tensor().data()) << "in place";
    }
  }
}

// The ninth method needs running state: one session steps inline, the other in shared memory.
TEST(SharedMemoryTest, PowerNormStepsAreTheSame) {
  SharedServer server;
  const std::unique_ptr<Client> client = server.NewClient();
  std::vector<std::string> want, got;
  for (std::vector<std::string>* results : {&want, &got}) {
    const bool shared = results == &got;
    v1::CreateSessionRequest create;
    create.set_session_id(shared ? "shared" : "sent");
    create.mutable_session()->mutable_spec()->mutable_power_norm()->set_warmup_iters(1);
    create.mutable_session()->set_num_channels(4);
    ASSERT_TRUE(client->CreateSession(create).ok());
    for (int step = 1; step <= 3; ++step) {
      v1::NormalizeRequest request;
      request.set_session("sessions/" + create.session_id());
      request.set_mode(v1::MODE_TRAINING);
      SetTensor({2, 4}, {1, 2, 3, static_cast<float>(step), 5, 6, 7, 8}, request.mutable_x());
      client::SharedBlock x, y;
      if (shared) x = MoveToBlock(*client, request.mutable_x());
      if (shared) y = AddSharedOutput(*client, v1::OUTPUT_KIND_Y, 32, &request);
      const auto response = client->Normalize(request);
      ASSERT_TRUE(response.ok()) << response.status();
      results->push_back(shared ? BytesOf(y) : response->outputs(0).tensor().data());
    }
  }
  EXPECT_EQ(got, want);
}

TEST(SharedMemoryTest, EveryInputAndOutputButMomentsMayBeShared) {
  SharedServer server;
  const std::unique_ptr<Client> client = server.NewClient();
  v1::NormalizeRequest request = LayerNormRequest(2);
  SetTensor({2, 4}, {1, 1, 1, 1, 2, 2, 2, 2}, request.mutable_residual()->mutable_tensor());
  SetTensor({4}, {1, 2, 3, 4}, request.mutable_parameters()->mutable_weight());
  constexpr v1::OutputKind kKinds[] = {v1::OUTPUT_KIND_H, v1::OUTPUT_KIND_Y, v1::OUTPUT_KIND_MEAN,
                                       v1::OUTPUT_KIND_INV_STD};
  for (const v1::OutputKind kind : kKinds) request.add_outputs()->set_kind(kind);
  request.add_outputs()->set_kind(v1::OUTPUT_KIND_MOMENTS);
  const v1::NormalizeResponse want = client->Normalize(request).value();
  std::vector<client::SharedBlock> blocks;
  blocks.push_back(MoveToBlock(*client, request.mutable_x()));
  blocks.push_back(MoveToBlock(*client, request.mutable_residual()->mutable_tensor()));
  blocks.push_back(MoveToBlock(*client, request.mutable_parameters()->mutable_weight()));
  request.clear_outputs();
  std::vector<client::SharedBlock> outputs;
  for (int i = 0; i < 4; ++i) {
    outputs.push_back(AddSharedOutput(*client, kKinds[i], want.outputs(i).tensor().data().size(), &request));
  }
  request.add_outputs()->set_kind(v1::OUTPUT_KIND_MOMENTS);
  const auto got = client->Normalize(request);
  ASSERT_TRUE(got.ok()) << got.status();
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(BytesOf(outputs[static_cast<size_t>(i)]) == want.outputs(i).tensor().data()) << i;
    EXPECT_EQ(got->outputs(i).tensor().shape_size(), want.outputs(i).tensor().shape_size());
  }
  EXPECT_EQ(got->outputs(4).moments().SerializeAsString(), want.outputs(4).moments().SerializeAsString());
}

TEST(SharedMemoryTest, BatchItemsMayShare) {
  SharedServer server;
  const std::unique_ptr<Client> client = server.NewClient();
  v1::BatchNormalizeRequest batch;
  *batch.add_items() = LayerNormRequest(3);
  *batch.add_items() = LayerNormRequest(2);
  const v1::BatchNormalizeResponse want = client->BatchNormalize(batch).value();
  const client::SharedBlock x = MoveToBlock(*client, batch.mutable_items(0)->mutable_x());
  const client::SharedBlock y = AddSharedOutput(*client, v1::OUTPUT_KIND_Y, 48, batch.mutable_items(0));
  *batch.add_items() = LayerNormRequest();
  batch.mutable_items(2)->mutable_x()->mutable_shared()->set_region("r-unknown");
  const v1::BatchNormalizeResponse got = client->BatchNormalize(batch).value();
  EXPECT_TRUE(BytesOf(y) == want.items(0).response().outputs(0).tensor().data());
  EXPECT_EQ(got.items(1).SerializeAsString(), want.items(1).SerializeAsString());
  EXPECT_EQ(ReasonOf(got.items(2).status()), "REGION_NOT_FOUND");
}

TEST(SharedMemoryTest, CallsOfAStreamMayShareButDefaultsMayNot) {
  SharedServer server;
  const std::unique_ptr<Client> client = server.NewClient();
  v1::NormalizeRequest call = LayerNormRequest(3);
  const v1::NormalizeResponse want = client->Normalize(call).value();
  const client::SharedBlock x = MoveToBlock(*client, call.mutable_x());
  const client::SharedBlock y = AddSharedOutput(*client, v1::OUTPUT_KIND_Y, 48, &call);
  const std::unique_ptr<NormalizeStream> stream = client->OpenStream();
  v1::StreamRequest item;
  *item.mutable_call() = call;
  ASSERT_TRUE(stream->Write(item));
  v1::StreamResponse response;
  ASSERT_TRUE(stream->Read(&response));
  ASSERT_TRUE(response.has_reply()) << response.error().message();
  EXPECT_TRUE(BytesOf(y) == want.outputs(0).tensor().data());
  v1::NormalizeRequest* const defaults = item.mutable_defaults()->mutable_request();
  *defaults->mutable_spec() = call.spec();
  *defaults->add_outputs() = call.outputs(0);
  ASSERT_TRUE(stream->Write(item));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(FieldOf(response.error()), "defaults.request.outputs[0].shared");
  EXPECT_TRUE(stream->Finish().ok());
}

struct Mistake {
  std::string field;
  grpc::StatusCode code;
  std::function<void(v1::NormalizeRequest&)> make;
};

TEST(SharedMemoryTest, NamesTheFieldOfEveryMistakeAndNotTheRegion) {
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;
  const std::vector<Mistake> mistakes = {
      {"x.shared.region", kNotFound, [](auto& r) { r.mutable_x()->mutable_shared()->set_region("r-secret"); }},
      {"outputs[0].shared.region", kNotFound,
       [](auto& r) { r.mutable_outputs(0)->mutable_shared()->set_region("r-secret"); }},
      {"x.shared.size_bytes", kInvalid, [](auto& r) { r.mutable_x()->mutable_shared()->set_size_bytes(~uint64_t{0}); }},
      {"x.shared.offset", kInvalid, [](auto& r) { r.mutable_x()->mutable_shared()->set_offset(~uint64_t{0} - 7); }},
      {"x.shared.size_bytes", kInvalid, [](auto& r) { r.mutable_x()->mutable_shared()->set_offset((64 << 20) - 8); }},
      {"x.shared.size_bytes", kInvalid, [](auto& r) { r.mutable_x()->mutable_shared()->set_size_bytes(12); }},
      {"outputs[0].shared.size_bytes", kInvalid,
       [](auto& r) { r.mutable_outputs(0)->mutable_shared()->set_size_bytes(12); }},
      {"outputs[0].shared", kInvalid,
       [](auto& r) { r.mutable_outputs(0)->mutable_shared()->set_offset(r.x().shared().offset() + 4); }},
      {"outputs[1].shared", kInvalid,
       [](auto& r) {
         *r.add_outputs() = r.outputs(0);
         r.mutable_outputs(1)->set_kind(v1::OUTPUT_KIND_H);
         *r.mutable_residual()->mutable_tensor() = r.x();
       }},
      {"outputs[1].shared", kInvalid,
       [](auto& r) {
         *r.add_outputs() = r.outputs(0);
         r.mutable_outputs(1)->set_kind(v1::OUTPUT_KIND_MOMENTS);
       }},
  };
  SharedServer server;
  const std::unique_ptr<Client> client = server.NewClient();
  v1::NormalizeRequest good = LayerNormRequest();
  const client::SharedBlock x = MoveToBlock(*client, good.mutable_x());
  const client::SharedBlock y = AddSharedOutput(*client, v1::OUTPUT_KIND_Y, 16, &good);
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.field);
    v1::NormalizeRequest request = good;
    mistake.make(request);
    v1::NormalizeResponse response;
    const grpc::Status status = server.server().Normalize(request, &response);
    EXPECT_EQ(status.error_code(), mistake.code) << status.error_message();
    const auto info = Detail<google::rpc::ErrorInfo>(DetailsOf(status));
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->metadata().at("field"), mistake.field) << status.error_message();
    for (const std::string& name : {std::string("secret"), x.region()}) {
      EXPECT_EQ((status.error_message() + status.error_details()).find(name), std::string::npos);
    }
    EXPECT_TRUE(server.server().Normalize(good, &response).ok());
  }
}

TEST(SharedMemoryTest, ALostRegionIsNoSession) {
  SharedServer server;
  v1::NormalizeRequest request = LayerNormRequest();
  request.mutable_x()->mutable_shared()->set_region("r-secret");
  v1::NormalizeResponse response;
  const grpc::Status status = server.server().Normalize(request, &response);
  const auto resource = Detail<google::rpc::ResourceInfo>(DetailsOf(status));
  ASSERT_TRUE(resource.has_value());
  EXPECT_EQ(resource->resource_type(), "normd.v1.SharedRange.region");
}

TEST(SharedMemoryTest, OverTcpRangesAreRefusedUnlessAllowed) {
  for (const bool anywhere : {false, true}) {
    SharedServer server(true, anywhere);
    const std::unique_ptr<Client> local = server.NewClient();
    v1::NormalizeRequest request = LayerNormRequest();
    const client::SharedBlock x = MoveToBlock(*local, request.mutable_x());
    const auto result = Client::Connect(server.tcp_target()).value()->Normalize(request);
    EXPECT_EQ(result.ok(), anywhere) << result.status();
    if (anywhere) continue;
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(client::GetErrorInfo(result.status())->field, "x.shared");
    server.server().ExpectAlive();
  }
}

TEST(SharedMemoryTest, DescribeTellsTheLimits) {
  SharedServer server;
  const v1::DescribeResponse with = server.NewClient()->Describe().value();
  EXPECT_EQ(with.limits().max_regions(), RegionLimits().max_regions);
  EXPECT_EQ(with.limits().max_region_bytes(), RegionLimits().max_total_bytes);
  TestServer off;
  v1::DescribeResponse without;
  grpc::ClientContext context;
  ASSERT_TRUE(off.normalizer().Describe(&context, {}, &without).ok());
  EXPECT_EQ(without.limits().max_regions(), 0);
}

TEST(SharedMemoryTest, ARegionThatIsDroppedServesTheRequestThatUsesIt) {
  SharedServer server;
  std::unique_ptr<Client> owner = server.NewClient();
  v1::NormalizeRequest request = LayerNormRequest();
  {
    const client::SharedBlock x = MoveToBlock(*owner, request.mutable_x());
    server.server().backend().Close();
    std::thread call([&] {
      v1::NormalizeResponse response;
      const grpc::Status status = server.server().Normalize(request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.outputs(0).tensor().data().size(), 16u);
    });
    server.server().backend().WaitForSubmitted(1);
    server.StopRegistrar();  // as when the client has died
    EXPECT_EQ(server.table().stats().regions, 1) << "still mapped";
    server.server().backend().Open();
    call.join();
  }
  EXPECT_TRUE(Eventually([&] { return server.table().stats().regions == 0; }));
  v1::NormalizeResponse response;
  EXPECT_EQ(server.server().Normalize(request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace normd::e2e

// ExportSession and ImportSession through the wire.
#include <functional>
#include <memory>
#include <vector>

#include "proto/wire/crc32c.h"
#include "tests/e2e/sessions_fixture.h"

namespace normd::e2e {
namespace {

using SessionTransferTest = SessionsTest;

TEST_F(SessionTransferTest, ExportAndImportCarryEverythingInChunks) {
  // Two channels fit one chunk; a LayerNorm over 40000 with weights takes several.
  v1::CreateSessionRequest request;
  request.set_session_id("wide");
  request.mutable_session()->mutable_spec()->mutable_layer_norm()->add_normalized_shape(40000);
  SetTensor({40000}, std::vector<float>(40000, 1.5F),
            request.mutable_session()->mutable_parameters()->mutable_weight());
  v1::Session session;
  ASSERT_TRUE(Create(request, &session).ok());
  const std::vector<v1::SessionChunk> chunks = Export("wide");
  ASSERT_GE(chunks.size(), 3u);
  int64_t offset = 0;
  for (const v1::SessionChunk& chunk : chunks) {
    EXPECT_EQ(chunk.chunk().offset(), offset);
    EXPECT_EQ(chunk.chunk().crc32c(), wire::Crc32c(chunk.chunk().data()));
    offset += static_cast<int64_t>(chunk.chunk().data().size());
    EXPECT_EQ(chunk.chunk().last(), &chunk == &chunks.back());
  }
  const grpc::Status status = Import("wide-2", chunks, &session);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(session.name(), "sessions/wide-2");
  EXPECT_EQ(Get("wide-2").parameters().SerializeAsString(), Get("wide").parameters().SerializeAsString());
}

TEST_F(SessionTransferTest, AnImportedSessionKnowsItsSteps) {
  v1::NormalizeResponse response;
  ASSERT_TRUE(server_.Normalize(Step(1), &response).ok());
  v1::Session session;
  ASSERT_TRUE(Import("copy", Export("bn"), &session).ok());
  v1::NormalizeRequest step = Step(1);
  step.set_session("sessions/copy");
  const grpc::Status status = server_.Normalize(step, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.state().replayed());
  EXPECT_EQ(Get("copy").state().SerializeAsString(), Get("bn").state().SerializeAsString());
}

TEST_F(SessionTransferTest, ImportRefusesWhatIsNotAWholeRecord) {
  struct Damage {
    std::string field;
    std::function<void(std::vector<v1::SessionChunk>&)> spoil;
  };
  const std::vector<Damage> damages = {
      {"chunk.last", [](auto& c) { c[0].mutable_chunk()->set_last(false); }},
      {"chunk.last", [](auto& c) { c.clear(); }},
      {"chunk.offset", [](auto& c) { c[0].mutable_chunk()->set_offset(1); }},
      {"chunk.crc32c", [](auto& c) { c[0].mutable_chunk()->mutable_data()->back() ^= 1; }},
      {"chunk", [](auto& c) { c.push_back(c[0]); }},
      {"chunk.data", [](auto& c) { c.insert(c.begin(), v1::SessionChunk()); }},
  };
  for (const Damage& damage : damages) {
    std::vector<v1::SessionChunk> chunks = Export("bn");
    ASSERT_EQ(chunks.size(), 1u);
    damage.spoil(chunks);
    v1::Session session;
    const grpc::Status status = Import("copy", chunks, &session);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << damage.field;
    EXPECT_EQ(FieldOf(status), damage.field) << status.error_message();
  }
  std::vector<v1::SessionChunk> damaged = Export("bn");
  v1::Chunk* const chunk = damaged[0].mutable_chunk();
  (*chunk->mutable_data())[chunk->data().size() / 2] ^= 0x10;
  chunk->set_crc32c(wire::Crc32c(chunk->data()));  // the chunk is whole, the record in it is not
  v1::Session session;
  EXPECT_EQ(Import("copy", damaged, &session).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(Import("", Export("bn"), &session).error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

// Records that nobody reads are in the budget like everything else that is held for callers.
TEST(SessionBudgetTest, UnreadRecordsAreHeldAndRefusedBeyondTheBudget) {
  TestServer server({.max_message_bytes = 4 << 20, .max_in_flight_bytes = 12 << 20, .export_chunk_bytes = 64 << 10});
  constexpr int kValues = 500'000;
  v1::CreateSessionRequest create;
  create.set_session_id("large");
  create.mutable_session()->mutable_spec()->mutable_layer_norm()->add_normalized_shape(kValues);
  SetTensor({kValues}, std::vector<float>(kValues, 1.5F),
            create.mutable_session()->mutable_parameters()->mutable_weight());
  v1::Session session;
  grpc::ClientContext create_context;
  ASSERT_TRUE(server.sessions().CreateSession(&create_context, create, &session).ok());

  // A client that takes in little more than it reads.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub =
      v1::Sessions::NewStub(grpc::CreateCustomChannel(server.target(), grpc::InsecureChannelCredentials(), arguments));
  constexpr int kExports = 12;
  v1::ExportSessionRequest request;
  request.set_name("sessions/large");
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::SessionChunk>>> readers;
  std::vector<size_t> bytes(kExports, 0);
  v1::SessionChunk chunk;
  for (int i = 0; i < kExports; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub->ExportSession(contexts.back().get(), request));
    // Its first chunk, or its refusal: the others stay with the server.
    if (readers.back()->Read(&chunk)) bytes[i] += chunk.chunk().data().size();
  }
  v1::GetSessionRequest get;
  get.set_name("sessions/large");
  get.set_view(v1::SESSION_VIEW_FULL);
  grpc::ClientContext full_context;
  EXPECT_EQ(server.sessions().GetSession(&full_context, get, &session).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  get.set_view(v1::SESSION_VIEW_BASIC);
  grpc::ClientContext basic_context;
  EXPECT_TRUE(server.sessions().GetSession(&basic_context, get, &session).ok());
  int refused = 0;
  for (int i = 0; i < kExports; ++i) {
    while (readers[i]->Read(&chunk)) bytes[i] += chunk.chunk().data().size();
    const grpc::Status status = readers[i]->Finish();
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_TRUE(!status.ok() || bytes[i] > size_t{kValues} * 4);
    refused += status.ok() ? 0 : 1;
  }
  EXPECT_GE(refused, 4) << "2 MB each, in 12 MiB";
  EXPECT_LT(refused, kExports);
  get.set_view(v1::SESSION_VIEW_FULL);
  grpc::ClientContext again;
  EXPECT_TRUE(server.sessions().GetSession(&again, get, &session).ok()) << "what was read is given back";
}

}  // namespace
}  // namespace normd::e2e

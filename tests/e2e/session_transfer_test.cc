// ExportSession and ImportSession through the wire.
#include <functional>

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

}  // namespace
}  // namespace normd::e2e

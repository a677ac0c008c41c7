// Tensors beyond one message: chunks on NormalizeStream, both ways.
#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "tests/e2e/open_stream.h"
#include "tests/e2e/sessions_fixture.h"

namespace normd::e2e {
namespace {

constexpr uint32_t kSeed = 7;

// Finite values of any dtype: bits in [1, 2) or so, of either sign.
std::string RandomData(v1::DType dtype, size_t elements) {
  std::mt19937 random(kSeed);
  std::normal_distribution<double> normal(1, 3);
  std::string data;
  for (size_t i = 0; i < elements; ++i) {
    const double f64 = normal(random);
    const auto f32 = static_cast<float>(f64);
    const auto f16 = static_cast<uint16_t>(0x3c00 | (random() & 0x83ff));
    const char* from = reinterpret_cast<const char*>(&f32);
    if (dtype == v1::DTYPE_F64) data.append(reinterpret_cast<const char*>(&f64), sizeof(f64));
    if (dtype == v1::DTYPE_F32) data.append(from, sizeof(f32));
    if (dtype == v1::DTYPE_BF16) data.append(from + 2, 2);  // the upper half
    if (dtype == v1::DTYPE_F16) data.append(reinterpret_cast<const char*>(&f16), sizeof(f16));
  }
  return data;
}

void SetRandom(const std::vector<int64_t>& shape, v1::DType dtype, v1::Tensor* tensor) {
  size_t elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
  tensor->set_dtype(dtype);
  tensor->mutable_shape()->Assign(shape.begin(), shape.end());
  tensor->set_data(RandomData(dtype, elements));
}

struct ChunkCase {
  const char* name;
  std::vector<int64_t> shape;
  v1::DType dtype;
  std::function<void(v1::NormSpec*)> spec;
  v1::Mode mode = v1::MODE_INFERENCE;
};

std::vector<ChunkCase> Cases() {
  return {
      {"rows", {61, 1031}, v1::DTYPE_F32, [](auto* s) { s->mutable_layer_norm()->add_normalized_shape(1031); }},
      {"rows of bf16", {61, 1031}, v1::DTYPE_BF16, [](auto* s) { s->mutable_rms_norm(); }},
      {"rows of f16", {7, 3, 1999}, v1::DTYPE_F16, [](auto* s) { s->mutable_scale_norm(); }},
      {"rows of f64", {33, 515}, v1::DTYPE_F64, [](auto* s) { s->mutable_p_rms_norm()->set_p(0.5); }},
      {"columns",
       {515, 65},
       v1::DTYPE_F32,
       [](auto* s) {
         s->mutable_lp_norm()->set_order(2);
         s->mutable_lp_norm()->set_axis(0);
       }},
      {"channels last",
       {4, 30, 9, 31},
       v1::DTYPE_F32,
       [](auto* s) { s->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST); },
       v1::MODE_TRAINING},
      {"channels first",
       {4, 31, 30, 9},
       v1::DTYPE_F16,
       [](auto* s) { s->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST); },
       v1::MODE_TRAINING},
      {"groups",
       {4, 32, 17, 9},
       v1::DTYPE_F32,
       [](auto* s) {
         s->mutable_group_norm()->set_num_groups(8);
         s->mutable_group_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
       }},
      {"permuted",
       {5, 7, 9, 41, 3},
       v1::DTYPE_F32,
       [](auto* s) {
         for (const int64_t axis : {0, 2, 4}) s->mutable_layer_norm()->add_axes(axis);
       }},
      {"two halves", {211, 47}, v1::DTYPE_F32, [](auto* s) { s->mutable_power_norm(); }, v1::MODE_TRAINING},
  };
}

v1::NormalizeRequest ChunkRequestOf(const ChunkCase& c) {
  v1::NormalizeRequest request;
  c.spec(request.mutable_spec());
  request.set_mode(c.mode);
  SetRandom(c.shape, c.dtype, request.mutable_x());
  return request;
}

void AddOutputs(std::initializer_list<v1::OutputKind> kinds, v1::NormalizeRequest* request) {
  for (const v1::OutputKind kind : kinds) request->add_outputs()->set_kind(kind);
}

// What is held of the server's budget, by way of its observer.
struct Held {
  std::shared_ptr<std::atomic<int64_t>> bytes = std::make_shared<std::atomic<int64_t>>(0);

  RpcOptions Options(RpcOptions options = {}) const {
    options.observer.on_bytes_in_flight = [bytes = bytes](int64_t now) { bytes->store(now); };
    return options;
  }
  bool BecomesNone() const {
    return Becomes([](int64_t now) { return now == 0; });
  }
  bool Becomes(const std::function<bool(int64_t)>& what) const {
    for (int i = 0; i < 1000; ++i) {
      if (what(bytes->load())) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }
};

void ExpectChunkedEqualsUnary(TestServer& server, const v1::NormalizeRequest& request, size_t chunk_bytes) {
  v1::NormalizeResponse alone;
  const grpc::Status status = server.Normalize(request, &alone);
  ASSERT_TRUE(status.ok()) << status.error_message();
  OpenStream stream(server);
  std::thread writer([&] {
    EXPECT_TRUE(stream.SendAll(InChunks(5, request, chunk_bytes)));
    stream.HalfClose();
  });
  const v1::StreamResponse response = stream.ReceiveWhole();
  EXPECT_TRUE(response.has_reply()) << response.error().message();
  EXPECT_EQ(response.sequence(), 5u);
  EXPECT_TRUE(response.reply().SerializeAsString() == alone.SerializeAsString());
  EXPECT_TRUE(stream.AtEnd());
  writer.join();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(ChunkTest, BytesEqualThoseOfUnaryCallsHoweverTheyAreCut) {
  const Held held;
  {
    TestServer server(held.Options());
    for (const ChunkCase& c : Cases()) {
      for (const size_t chunk_bytes : {9973, (16 << 10) + 1, 50000, 1 << 20}) {
        SCOPED_TRACE(absl::StrCat(c.name, ", chunks of ", chunk_bytes));
        ExpectChunkedEqualsUnary(server, ChunkRequestOf(c), chunk_bytes);
      }
    }
    EXPECT_TRUE(held.BecomesNone()) << *held.bytes;
  }
}

TEST(ChunkTest, ChunksMayBeAByte) {
  TestServer server;
  ExpectChunkedEqualsUnary(server, LayerNormRequest(5), 1);
}

TEST(ChunkTest, ResidualAndSeveralOutputsTravelInChunks) {
  TestServer server;
  for (const size_t chunk_bytes : {9973, (16 << 10) + 1, 1 << 20}) {
    v1::NormalizeRequest request = ChunkRequestOf(Cases()[0]);
    SetRandom({61, 1031}, v1::DTYPE_F64, request.mutable_residual()->mutable_tensor());
    AddOutputs({v1::OUTPUT_KIND_MEAN, v1::OUTPUT_KIND_H, v1::OUTPUT_KIND_MOMENTS, v1::OUTPUT_KIND_Y}, &request);
    ExpectChunkedEqualsUnary(server, request, chunk_bytes);
  }
}

TEST(ChunkTest, ReplyChunksAreCutToo) {
  TestServer server;
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  SetRandom({1001, 1031}, v1::DTYPE_F32, request.mutable_x());  // of almost 4 MiB
  ExpectChunkedEqualsUnary(server, request, 1 << 20);
}

TEST(ChunkTest, AnEmptyTensorHasOneEmptyChunk) {
  TestServer server;
  v1::NormalizeRequest request = LayerNormRequest();
  SetTensor({0, 4}, {}, request.mutable_x());
  ExpectChunkedEqualsUnary(server, request, 100);
}

TEST(ChunkTest, OneTensorMayComeInTheCall) {
  TestServer server;
  v1::NormalizeRequest request = LayerNormRequest(3);
  *request.mutable_residual()->mutable_tensor() = request.x();
  v1::NormalizeResponse alone;
  ASSERT_TRUE(server.Normalize(request, &alone).ok());
  OpenStream stream(server);
  std::vector<v1::StreamRequest> messages = InChunks(1, request, 16);
  *messages[0].mutable_call()->mutable_x() = request.x();
  messages.resize(1 + 3);  // those of the residual
  ASSERT_TRUE(stream.SendAll(messages));
  v1::StreamResponse response = stream.ReceiveWhole();
  EXPECT_EQ(response.reply().SerializeAsString(), alone.SerializeAsString()) << response.error().message();
  messages = InChunks(2, request, 16);
  *messages[0].mutable_call()->mutable_residual() = request.residual();
  messages.erase(messages.begin() + 1, messages.begin() + 1 + 3);
  ASSERT_TRUE(stream.SendAll(messages));
  response = stream.ReceiveWhole();
  EXPECT_EQ(response.reply().SerializeAsString(), alone.SerializeAsString()) << response.error().message();
  stream.HalfClose();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(ChunkTest, AnswersKeepTheOrderOfTheStream) {
  TestServer server({.max_stream_calls = 2});
  OpenStream stream(server);
  const v1::NormalizeRequest large = ChunkRequestOf(Cases()[0]);
  std::thread writer([&] {
    stream.Send(1, LayerNormRequest(1));
    stream.SendAll(InChunks(2, large, 20000));
    stream.Send(3, LayerNormRequest(3));
    stream.SendAll(InChunks(4, large, 100000));
    stream.Send(5, LayerNormRequest(5));
    stream.HalfClose();
  });
  for (uint64_t i = 1; i <= 5; ++i) {
    const v1::StreamResponse response = stream.ReceiveWhole();
    EXPECT_EQ(response.sequence(), i);
    const int64_t rows = i % 2 == 0 ? 61 : static_cast<int64_t>(i);
    EXPECT_EQ(response.reply().outputs(0).tensor().shape(0), rows) << response.error().message();
  }
  EXPECT_TRUE(stream.AtEnd());
  writer.join();
  EXPECT_TRUE(stream.Finish().ok());
}

// ---- refused on arrival

struct ChunkRefusal {
  std::string field;
  std::function<void(v1::NormalizeRequest*)> spoil;
  grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
};

TEST(ChunkTest, WhatCanBeJudgedIsAnsweredBeforeTheChunksCome) {
  const Held held;
  TestServer server(held.Options({.max_tensor_bytes = 1 << 20}));
  const std::vector<ChunkRefusal> refusals = {
      {"call.x.dtype", [](auto* call) { call->mutable_x()->set_dtype(v1::DTYPE_UNSPECIFIED); }},
      {"call.x.chunked", [](auto* call) { call->mutable_x()->mutable_chunked()->set_size_bytes(47); }},
      {"call.x.shape", [](auto* call) { call->mutable_x()->clear_shape(); }},
      {"call.x.chunked.size_bytes",
       [](auto* call) { call->mutable_x()->mutable_chunked()->set_size_bytes((1 << 20) + 1); }},
      {"call.x.chunked.size_bytes",
       [](auto* call) { call->mutable_x()->mutable_chunked()->set_size_bytes(~uint64_t{0}); }},
      {"call.spec.layer_norm.eps", [](auto* call) { call->mutable_spec()->mutable_layer_norm()->set_eps(-1); }},
      {"call.spec.layer_norm.normalized_shape",
       [](auto* call) { call->mutable_spec()->mutable_layer_norm()->set_normalized_shape(0, 5); }},
      {"call.outputs[0].kind", [](auto* call) { call->add_outputs()->set_kind(v1::OUTPUT_KIND_H); }},
      {"call.residual.tensor",
       [](auto* call) {
         call->mutable_residual()->mutable_tensor()->set_dtype(v1::DTYPE_F32);
         call->mutable_residual()->mutable_tensor()->add_shape(4);
         call->mutable_residual()->mutable_tensor()->mutable_chunked()->set_size_bytes(16);
       }},
      {"call.mask",
       [](auto* call) {
         call->mutable_mask()->add_shape(3);
         call->mutable_mask()->set_data("abc");
       }},
      {"call.parameters.weight.chunked", [](auto* call) { *call->mutable_parameters()->mutable_weight() = call->x(); }},
      {"", [](auto* call) { call->set_session("sessions/nobody"); }, grpc::StatusCode::NOT_FOUND},
  };
  OpenStream stream(server);
  for (const ChunkRefusal& refusal : refusals) {
    std::vector<v1::StreamRequest> messages = InChunks(1, LayerNormRequest(3), 16);
    refusal.spoil(messages[0].mutable_call());
    ASSERT_TRUE(stream.Send(messages[0]));
    const v1::StreamResponse refused = stream.Receive();  // now, while the chunks are still here
    EXPECT_EQ(refused.sequence(), 1u);
    EXPECT_EQ(refused.error().code(), refusal.code) << refused.ShortDebugString();
    EXPECT_EQ(FieldOf(refused.error()), refusal.field) << refused.error().message();
    EXPECT_TRUE(held.BecomesNone());
    messages.erase(messages.begin());
    ASSERT_TRUE(stream.SendAll(messages));
    ASSERT_TRUE(stream.Send(2, LayerNormRequest()));
    const v1::StreamResponse next = stream.Receive();
    EXPECT_EQ(next.sequence(), 2u);
    EXPECT_TRUE(next.has_reply()) << next.error().message();
  }
}

TEST(ChunkTest, WhatDoesNotFitTheBudgetIsRefusedAtOnce) {
  const Held held;
  TestServer server(
      held.Options({.max_message_bytes = 64 << 10, .max_in_flight_bytes = 256 << 10, .max_caller_bytes = 256 << 10}));
  const std::string data(100 << 10, '\0');
  v1::NormalizeRequest call;
  call.mutable_spec()->mutable_rms_norm();
  call.mutable_x()->set_dtype(v1::DTYPE_F32);
  call.mutable_x()->add_shape(100 << 8);
  call.mutable_x()->mutable_chunked()->set_size_bytes(data.size());
  OpenStream first(server);
  ASSERT_TRUE(first.Send(1, call));
  ASSERT_TRUE(held.Becomes([](int64_t now) { return now >= 200 << 10; }));
  OpenStream second(server);
  ASSERT_TRUE(second.Send(2, call));
  const v1::StreamResponse refused = second.Receive();
  EXPECT_EQ(refused.error().code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Detail<google::rpc::RetryInfo>(refused.error()).has_value());
  ASSERT_TRUE(second.SendAll(ChunksOf(2, data, 10000)));
  EXPECT_TRUE(held.Becomes([](int64_t now) { return now <= 210 << 10; }));
  ASSERT_TRUE(first.SendAll(ChunksOf(1, data, 10000)));
  EXPECT_TRUE(first.ReceiveWhole().has_reply());
  EXPECT_TRUE(held.BecomesNone());
  ASSERT_TRUE(second.SendAll(InChunks(3, LayerNormRequest(), 16)));
  EXPECT_TRUE(second.ReceiveWhole().has_reply());
}

// ---- violations

using Messages = std::vector<v1::StreamRequest>;

struct Violation {
  std::string field;
  std::function<void(Messages&)> spoil;
};

std::vector<Violation> Violations() {
  const auto chunk = [](Messages& m, size_t i) { return m[i].mutable_chunk(); };
  return {
      {"sequence", [](Messages& m) { m[2].set_sequence(9); }},
      {"chunk.offset", [=](Messages& m) { chunk(m, 1)->set_offset(1); }},
      {"chunk.offset", [=](Messages& m) { chunk(m, 2)->set_offset(7); }},
      {"chunk.offset", [=](Messages& m) { chunk(m, 2)->set_offset(-8); }},
      {"chunk.offset", [](Messages& m) { m.erase(m.begin() + 2); }},
      {"chunk.offset", [](Messages& m) { m.insert(m.begin() + 2, m[1]); }},
      {"chunk.crc32c", [=](Messages& m) { chunk(m, 2)->mutable_data()->back() ^= 1; }},
      {"chunk.crc32c", [=](Messages& m) { chunk(m, 3)->clear_crc32c(); }},
      {"chunk.last", [=](Messages& m) { chunk(m, 2)->set_last(true); }},
      {"chunk.last", [=](Messages& m) { chunk(m, m.size() - 1)->set_last(false); }},
      {"chunk.data",
       [=](Messages& m) {
         v1::Chunk* const last = chunk(m, m.size() - 1);
         last->set_data(last->data() + "x");
         last->set_crc32c(wire::Crc32c(last->data()));
       }},
      {"chunk.data",
       [=](Messages& m) {
         v1::StreamRequest empty = m[2];
         empty.mutable_chunk()->clear_data();
         empty.mutable_chunk()->set_crc32c(0);
         m.insert(m.begin() + 2, empty);
       }},
      {"chunk.data",
       [=](Messages& m) {
         chunk(m, 1)->set_data(std::string((1 << 20) + 1, 'x'));
         chunk(m, 1)->set_crc32c(wire::Crc32c(chunk(m, 1)->data()));
       }},
      {"chunk.data",
       [=](Messages& m) {
         chunk(m, 1)->set_data(std::string(3 << 20, 'x'));
         chunk(m, 1)->set_crc32c(wire::Crc32c(chunk(m, 1)->data()));
       }},
      {"chunk", [](Messages& m) { m.pop_back(); }},  // the next call comes instead
      {"chunk", [](Messages& m) { m.resize(1); }},
  };
}

class ChunkedSessionTest : public SessionsTest {
 protected:
  // The step of "bn" in chunks of 4 bytes.
  static Messages StepInChunks(uint64_t sequence) { return InChunks(sequence, Step(sequence), 4); }
  void ExpectUntouched() {
    const v1::Session session = Get("bn");
    EXPECT_EQ(session.version(), created_.version());
    EXPECT_EQ(session.state().num_batches(), 0u);
  }
};

TEST_F(ChunkedSessionTest, AViolationIsOneErrorAndChangesNothing) {
  for (const Violation& violation : Violations()) {
    OpenStream stream(server_);
    Messages messages = StepInChunks(1);
    violation.spoil(messages);
    ASSERT_TRUE(stream.SendAll(messages));
    ASSERT_TRUE(stream.Send(2, LayerNormRequest()));
    const v1::StreamResponse refused = stream.Receive();
    EXPECT_EQ(refused.sequence(), 1u);
    EXPECT_EQ(refused.error().code(), grpc::StatusCode::INVALID_ARGUMENT) << refused.ShortDebugString();
    EXPECT_EQ(FieldOf(refused.error()), violation.field) << refused.error().message();
    const v1::StreamResponse next = stream.Receive();
    EXPECT_EQ(next.sequence(), 2u) << violation.field << ": " << next.error().message();
    EXPECT_TRUE(next.has_reply());
    stream.HalfClose();
    EXPECT_TRUE(stream.AtEnd());
    EXPECT_TRUE(stream.Finish().ok());
  }
  ExpectUntouched();
}

TEST_F(ChunkedSessionTest, DefaultsInBetweenAreTaken) {
  OpenStream stream(server_);
  Messages messages = StepInChunks(1);
  messages.pop_back();
  ASSERT_TRUE(stream.SendAll(messages));
  v1::NormalizeRequest defaults = LayerNormRequest();
  defaults.clear_x();
  ASSERT_TRUE(stream.SendDefaults(2, defaults));
  v1::NormalizeRequest call;
  *call.mutable_x() = LayerNormRequest(2).x();
  ASSERT_TRUE(stream.SendAll(InChunks(3, call, 5)));
  EXPECT_EQ(FieldOf(stream.Receive().error()), "chunk");
  EXPECT_EQ(stream.ReceiveWhole().reply().applied().method(), "layer_norm");
  ExpectUntouched();
}

TEST_F(ChunkedSessionTest, HalfCloseInTheMiddleIsAnswered) {
  OpenStream stream(server_);
  Messages messages = StepInChunks(1);
  messages.pop_back();
  ASSERT_TRUE(stream.SendAll(messages));
  stream.HalfClose();
  const v1::StreamResponse refused = stream.Receive();
  EXPECT_EQ(FieldOf(refused.error()), "chunk");
  EXPECT_NE(refused.error().message().find("12 of 16 bytes"), std::string::npos) << refused.error().message();
  EXPECT_TRUE(stream.AtEnd());
  EXPECT_TRUE(stream.Finish().ok());
  ExpectUntouched();
}

TEST_F(ChunkedSessionTest, AnEmptyMessageInTheMiddleEndsTheStream) {
  OpenStream stream(server_);
  Messages messages = StepInChunks(1);
  messages.back().clear_item();
  ASSERT_TRUE(stream.SendAll(messages));
  EXPECT_EQ(FieldOf(stream.Receive().error()), "chunk");
  EXPECT_TRUE(stream.AtEnd());
  EXPECT_EQ(FieldOf(stream.Finish()), "item");
  ExpectUntouched();
}

TEST_F(ChunkedSessionTest, ChunksThatNobodyAwaitsAreAnsweredOnce) {
  OpenStream stream(server_);
  const Messages messages = ChunksOf(4, "abcdefgh", 1);
  ASSERT_TRUE(stream.SendAll(messages));
  ASSERT_TRUE(stream.SendAll(StepInChunks(1)));
  ASSERT_TRUE(stream.SendAll(messages));  // after the last one
  ASSERT_TRUE(stream.Send(2, LayerNormRequest()));
  for (const uint64_t sequence : {4, 1, 4, 2}) {
    const v1::StreamResponse response = stream.ReceiveWhole();
    EXPECT_EQ(response.sequence(), sequence);
    EXPECT_EQ(FieldOf(response.error()), sequence == 4 ? "chunk" : "");
  }
}

TEST_F(ChunkedSessionTest, AStepIsTakenOnceAndReplayed) {
  v1::NormalizeResponse alone;
  v1::NormalizeRequest twin = Step(1);
  ASSERT_TRUE(Create(BatchNormSession("twin"), &created_).ok());
  twin.set_session("sessions/twin");
  ASSERT_TRUE(server_.Normalize(twin, &alone).ok());

  OpenStream stream(server_);
  ASSERT_TRUE(stream.SendAll(StepInChunks(1)));
  const v1::StreamResponse first = stream.ReceiveWhole();
  ASSERT_TRUE(first.has_reply()) << first.error().message();
  EXPECT_TRUE(first.reply().state().applied());
  EXPECT_FALSE(first.reply().state().replayed());
  EXPECT_EQ(first.reply().outputs(0).tensor().data(), alone.outputs(0).tensor().data());
  EXPECT_EQ(Get("bn").state().SerializeAsString(), Get("twin").state().SerializeAsString());

  ASSERT_TRUE(stream.SendAll(InChunks(1, Step(1), 7)));  // cut otherwise
  const v1::StreamResponse again = stream.ReceiveWhole();
  EXPECT_TRUE(again.reply().state().replayed()) << again.error().message();
  EXPECT_EQ(again.reply().state().version(), first.reply().state().version());
  EXPECT_EQ(again.reply().outputs(0).tensor().data(), alone.outputs(0).tensor().data());
  v1::NormalizeResponse unary;  // and the other way round
  ASSERT_TRUE(server_.Normalize(Step(1), &unary).ok());
  EXPECT_TRUE(unary.state().replayed());
}

TEST_F(ChunkedSessionTest, StepsMoveTheVersionInTheOrderOfTheStream) {
  OpenStream stream(server_);
  for (uint64_t i = 1; i <= 4; ++i) {
    Messages messages = StepInChunks(i);
    messages[0].mutable_call()->set_expected_version(i - 1 + created_.version());
    ASSERT_TRUE(stream.SendAll(messages));
  }
  for (uint64_t i = 1; i <= 4; ++i) {
    const v1::StreamResponse response = stream.ReceiveWhole();
    EXPECT_EQ(response.reply().state().version(), i + created_.version()) << response.error().message();
  }
}

// ---- callers who go away, or do not read

TEST(ChunkTest, ACallerWhoGoesAwayInTheMiddleLeavesNothingBehind) {
  const Held held;
  TestServer server(held.Options());
  const v1::NormalizeRequest request = ChunkRequestOf(Cases()[0]);
  for (const size_t sent : {1, 3}) {
    OpenStream stream(server);
    Messages messages = InChunks(1, request, 50000);
    messages.resize(sent);
    ASSERT_TRUE(stream.SendAll(messages));
    ASSERT_TRUE(held.Becomes([](int64_t now) { return now >= 2 * 61 * 1031 * 4; }));
    stream.context().TryCancel();
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_TRUE(held.BecomesNone()) << *held.bytes;
  }
  {
    server.backend().Close();
    OpenStream stream(server);
    ASSERT_TRUE(stream.SendAll(InChunks(1, request, 50000)));
    server.backend().WaitForSubmitted(1);
    stream.context().TryCancel();
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
    server.backend().Open();
    EXPECT_TRUE(held.BecomesNone()) << *held.bytes;
  }
  server.ExpectAlive();
}

TEST(ChunkTest, ASlowReaderHoldsTheBudgetAndNothingElse) {
  const Held held;
  TestServer server(held.Options());
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  SetRandom({1024, 4096}, v1::DTYPE_F32, request.mutable_x());  // 16 MiB: more than connections buffer
  const auto size_bytes = static_cast<int64_t>(request.x().data().size());
  {
    OpenStream stream(server);
    ASSERT_TRUE(stream.SendAll(InChunks(1, request, 1 << 20)));
    // What came is given back, what goes out is not yet.
    EXPECT_TRUE(held.Becomes([=](int64_t now) { return now == size_bytes; })) << *held.bytes;
    absl::SleepFor(absl::Milliseconds(50));
    EXPECT_EQ(*held.bytes, size_bytes);
    server.ExpectAlive();
    v1::NormalizeResponse alone;
    ASSERT_TRUE(server.Normalize(request, &alone).ok());
    EXPECT_TRUE(stream.ReceiveWhole().reply().SerializeAsString() == alone.SerializeAsString());
    EXPECT_TRUE(held.BecomesNone());
    // And one who goes away instead of reading.
    ASSERT_TRUE(stream.SendAll(InChunks(2, request, 1 << 20)));
    EXPECT_TRUE(held.Becomes([=](int64_t now) { return now == size_bytes; })) << *held.bytes;
    stream.context().TryCancel();
  }
  EXPECT_TRUE(held.BecomesNone()) << *held.bytes;
}

// ---- the C++ client

TEST(ChunkTest, TheClientSendsWhatNoMessageHolds) {
  TestServer server({.max_message_bytes = 64 << 10, .max_in_flight_bytes = 64 << 20});
  TestServer roomy;
  const auto client = *Client::Connect(server.target());
  const auto ask = *Client::Connect(roomy.target());
  v1::NormalizeRequest request = ChunkRequestOf(Cases()[5]);
  SetRandom({30, 40, 31, 31}, v1::DTYPE_F32, request.mutable_x());  // 4.4 MiB
  const absl::StatusOr<v1::NormalizeResponse> whole = ask->Normalize(request);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const absl::StatusOr<v1::NormalizeResponse> chunked = client->Normalize(request);
  ASSERT_TRUE(chunked.ok()) << chunked.status();
  EXPECT_TRUE(chunked->SerializeAsString() == whole->SerializeAsString());

  *request.mutable_residual()->mutable_tensor() = request.x();
  AddOutputs({v1::OUTPUT_KIND_Y, v1::OUTPUT_KIND_MEAN, v1::OUTPUT_KIND_MOMENTS, v1::OUTPUT_KIND_H}, &request);
  EXPECT_TRUE(client->NormalizeChunked(request)->SerializeAsString() == ask->Normalize(request)->SerializeAsString());
}

TEST(ChunkTest, TheClientHearsARefusalBeforeItHasSentEverything) {
  TestServer server({.max_message_bytes = 64 << 10, .max_in_flight_bytes = 4 << 20});
  const auto client = *Client::Connect(server.target());
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  SetRandom({1024, 1100}, v1::DTYPE_F32, request.mutable_x());
  const absl::Status refused = client->Normalize(request).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  ASSERT_TRUE(client::GetErrorInfo(refused).has_value());
  EXPECT_EQ(client::GetErrorInfo(refused)->field, "call.x.chunked.size_bytes");
  server.ExpectAlive();
}

TEST(ChunkTest, DescribeNamesTheLimits) {
  TestServer server({.max_message_bytes = 1 << 20, .max_in_flight_bytes = 16 << 20});
  v1::DescribeResponse describe;
  grpc::ClientContext context;
  ASSERT_TRUE(server.normalizer().Describe(&context, {}, &describe).ok());
  EXPECT_EQ(describe.limits().max_chunk_bytes(), 1 << 20);
  EXPECT_EQ(describe.limits().max_tensor_bytes(), (15 << 20) / 2);  // what a caller may hold, coming and going
}

}  // namespace
}  // namespace normd::e2e

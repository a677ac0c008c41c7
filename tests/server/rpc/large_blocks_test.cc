// From received bytes to the bytes of the reply, no block of tensor size is allocated outside the pool and no tensor is
// copied but those that a plan needs in one piece: once, into a block of the pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/backend.h"
#include "normd/v1/normalizer.pb.h"
#include "server/base/clock.h"
#include "server/engine/engine.h"
#include "server/rpc/codec/decode_call.h"
#include "server/rpc/codec/encode.h"
#include "server/rpc/codec/message.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/memory/memory_store.h"
#include "tests/server/rpc/block_watch_fixture.h"

namespace normd::rpc {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kTensorBytes[] = {1 * kMiB, 16 * kMiB};
constexpr size_t kItems = 2;  // of a batch

void Fill(const std::vector<int64_t>& shape, float value, v1::Tensor* tensor) {
  size_t elements = 1;
  tensor->set_dtype(v1::DTYPE_F32);
  for (const int64_t extent : shape) {
    tensor->add_shape(extent);
    elements *= static_cast<size_t>(extent);
  }
  std::vector<float> values(elements, value);
  for (size_t i = 0; i < elements; i += 3) values[i] = static_cast<float>(i % 11);
  tensor->set_data(values.data(), elements * sizeof(float));
}

// A kind of request, and what it costs: for a tensor of x's size, the blocks of the pool, and the copies.
struct Case {
  const char* name;
  std::function<void(size_t x_bytes, v1::NormalizeRequest*)> fill;
  size_t blocks = 1;  // y
  size_t copies = 0;
};

int64_t Rows(size_t x_bytes, int64_t row_elements) { return static_cast<int64_t>(x_bytes) / 4 / row_elements; }

// Each has x of [rows, 64, 16] if `fill_spec` leaves it alone.
Case WithSpec(const char* name, const std::function<void(v1::NormSpec*)>& fill_spec) {
  return {name, [fill_spec](size_t x_bytes, v1::NormalizeRequest* request) {
            fill_spec(request->mutable_spec());
            Fill({Rows(x_bytes, 1024), 64, 16}, 1, request->mutable_x());
          }};
}

Case MakeContiguous(Case of) {
  of.blocks = 2;
  of.copies = 1;
  return of;
}

// x is read where it lies.
std::vector<Case> RowsCases() {
  return {
      WithSpec("layer norm",
               [](v1::NormSpec* spec) {
                 spec->mutable_layer_norm()->add_normalized_shape(64);
                 spec->mutable_layer_norm()->add_normalized_shape(16);
               }),
      WithSpec("RMS norm", [](v1::NormSpec* spec) { spec->mutable_rms_norm(); }),
      WithSpec("pRMS norm", [](v1::NormSpec* spec) { spec->mutable_p_rms_norm()->set_p(0.25); }),
      WithSpec("scale norm", [](v1::NormSpec* spec) { spec->mutable_scale_norm(); }),
      WithSpec("Lp norm", [](v1::NormSpec* spec) { spec->mutable_lp_norm()->set_order(2); }),
      WithSpec("instance norm",
               [](v1::NormSpec* spec) { spec->mutable_instance_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST); }),
      WithSpec("group norm",
               [](v1::NormSpec* spec) {
                 spec->mutable_group_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
                 spec->mutable_group_norm()->set_num_groups(8);
               }),
  };
}

// x is put together in a block of the pool.
std::vector<Case> ContiguousCases() {
  std::vector<Case> cases = {
      WithSpec("instance norm, channels last",
               [](v1::NormSpec* spec) { spec->mutable_instance_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST); }),
      WithSpec("group norm, channels last",
               [](v1::NormSpec* spec) {
                 spec->mutable_group_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
                 spec->mutable_group_norm()->set_num_groups(4);
               }),
      WithSpec("Lp norm of a middle axis",
               [](v1::NormSpec* spec) {
                 spec->mutable_lp_norm()->set_order(2);
                 spec->mutable_lp_norm()->set_axis(1);
               }),
      {"RMS norm of a long row",
       [](size_t x_bytes, v1::NormalizeRequest* request) {
         request->mutable_spec()->mutable_rms_norm();
         Fill({2, Rows(x_bytes, 2)}, 1, request->mutable_x());
       }},
      {"batch norm, a training step",
       [](size_t x_bytes, v1::NormalizeRequest* request) {
         request->set_session("sessions/s");
         request->set_mode(v1::MODE_TRAINING);
         Fill({Rows(x_bytes, 64), 64}, 1, request->mutable_x());
       }},
  };
  std::transform(cases.begin(), cases.end(), cases.begin(), MakeContiguous);
  return cases;
}

// Both tensors are put together; h is a result, so that it needs no place of its own.
Case ResidualCase() {
  Case with_h = RowsCases()[1];
  with_h.name = "residual, h returned";
  with_h.fill = [fill = with_h.fill](size_t x_bytes, v1::NormalizeRequest* request) {
    fill(x_bytes, request);
    *request->mutable_residual()->mutable_tensor() = request->x();
    request->add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
    request->add_outputs()->set_kind(v1::OUTPUT_KIND_H);
  };
  with_h.blocks = 4;
  with_h.copies = 2;
  return with_h;
}

// As the transport delivers it: in pieces, none of them aligned.
MessageBytes Received(const google::protobuf::Message& message) {
  const std::string bytes = message.SerializeAsString();
  MessageBytes received;
  for (size_t at = 0, size = 65001; at < bytes.size(); at += size) received.Append(Slice(bytes.substr(at, size)));
  return received;
}

// An engine of its own, with an empty pool.
class Path {
 public:
  Path() {
    Session session;
    session.id = "s";
    session.spec.attributes = BatchNormSpec{.layout = Layout::kChannelsLast};
    session.num_channels = 64;
    session.parameters = std::make_shared<OwnedParameters>();
    store_.Create(std::move(session), [](const absl::StatusOr<SessionPtr>& made) { EXPECT_TRUE(made.ok()); });
  }

  size_t idle_bytes() { return static_cast<size_t>(resources_.buffers->idle_bytes()); }

  // The handlers of normalizer_service.cc and normalize_stream.cc without their streams. They return when the engine
  // has let go of everything.
  MessageBytes Normalize(const MessageBytes& bytes) {
    const auto request = ParseTensors<v1::NormalizeRequest>(bytes);
    return Submit(*request, request, [](CallReply reply, Observation& observation) {
      return EncodeNormalizeResponse(std::move(reply), false, observation);
    });
  }

  MessageBytes StreamCall(const MessageBytes& bytes) {
    const auto request = ParseTensors<v1::StreamRequest>(bytes);
    return Submit(request->call(), request, [&](CallReply reply, Observation& observation) {
      return EncodeStreamReply(request->sequence(), EncodeNormalizeResponse(std::move(reply), false, observation));
    });
  }

  MessageBytes Batch(const MessageBytes& bytes) {
    const auto request = ParseTensors<v1::BatchNormalizeRequest>(bytes);
    auto [owner, released] = Owner();
    std::vector<Call> calls;
    for (const v1::NormalizeRequest& item : request->items()) {
      calls.push_back(DecodeCall({&item, request.tensors}, {}, /*tenant=*/"").value());
      calls.back().owner = owner;
    }
    return Wait(std::move(owner), released, [&](MessageBytes& answer) {
      engine_.SubmitBatch(std::move(calls), [&answer](std::vector<absl::StatusOr<CallReply>> results) {
        Observation observation(nullptr, "", RequestOrigin());
        WireBody body;
        for (absl::StatusOr<CallReply>& result : results) {
          EXPECT_TRUE(result.ok()) << result.status();
          body.AppendMessageField(1, EncodeBatchItem(EncodeNormalizeResponse(*std::move(result), false, observation)));
        }
        answer = std::move(body).ToBytes();
      });
    });
  }

 private:
  template <typename Message>
  Parsed<Message> ParseTensors(const MessageBytes& bytes) {
    Parsed<Message> request = Parse<Message>(bytes, Reservation()).value();
    request.tensors->SetBuffers(resources_.buffers.get());
    return request;
  }

  // An owner for calls, and what is ready when the last of them has gone.
  static std::pair<std::shared_ptr<const void>, std::shared_future<void>> Owner() {
    auto gone = std::make_shared<std::promise<void>>();
    std::shared_future<void> released = gone->get_future().share();
    return {std::shared_ptr<const void>(gone.get(), [gone](const void*) { gone->set_value(); }), released};
  }

  MessageBytes Wait(std::shared_ptr<const void> owner, const std::shared_future<void>& released,
                    absl::FunctionRef<void(MessageBytes&)> submit) {
    MessageBytes answer;
    submit(answer);
    owner.reset();
    released.wait();
    return answer;
  }

  template <typename Message>
  MessageBytes Submit(const v1::NormalizeRequest& message, const Parsed<Message>& request,
                      absl::FunctionRef<WireBody(CallReply, Observation&)> encode) {
    auto [owner, released] = Owner();
    Call call = DecodeCall({&message, request.tensors}, {}, /*tenant=*/"").value();
    call.owner = owner;
    return Wait(std::move(owner), released, [&](MessageBytes& answer) {
      engine_.Submit(std::move(call), [&answer, encode](absl::StatusOr<CallReply> result) {
        Observation observation(nullptr, "", RequestOrigin());
        EXPECT_TRUE(result.ok()) << result.status();
        if (result.ok()) answer = encode(*std::move(result), observation).ToBytes();
      });
    });
  }

  SystemClock clock_;
  MemoryStore store_{SessionLimits(), &clock_};
  const std::unique_ptr<Backend> backend_ = MakeCpuBackend({.threads = 2});
  DeviceScheduler scheduler_{backend_.get()};
  Resources resources_{int64_t{1} << 30};
  Engine engine_{&scheduler_, &store_, &resources_};
};

enum class Kind { kUnary, kBatch, kStream };

struct Cost {
  std::vector<size_t> allocations;  // of a quarter of x and more, with the pool warm
  size_t copied_bytes = 0;
  size_t pool_bytes = 0;  // at one time
};

Cost Measure(Kind kind, const v1::NormalizeRequest& request) {
  Path path;
  MessageBytes received;
  if (kind == Kind::kUnary) received = Received(request);
  if (kind == Kind::kBatch) {
    v1::BatchNormalizeRequest batch;
    for (size_t i = 0; i < kItems; ++i) *batch.add_items() = request;
    received = Received(batch);
  }
  if (kind == Kind::kStream) {
    v1::StreamRequest message;
    *message.mutable_call() = request;
    received = Received(message);
  }
  const auto answer = [&] {
    const MessageBytes reply = kind == Kind::kUnary   ? path.Normalize(received)
                               : kind == Kind::kBatch ? path.Batch(received)
                                                      : path.StreamCall(received);
    EXPECT_GT(static_cast<size_t>(reply.size_bytes()), request.x().data().size());
  };
  for (int warm_up = 0; warm_up < 2; ++warm_up) answer();
  Cost cost;
  {
    const BlockWatch watch(request.x().data().size() / 4);
    answer();
    cost.allocations = watch.Allocations();
    cost.copied_bytes = watch.CopiedBytes();
  }
  cost.pool_bytes = path.idle_bytes();
  return cost;
}

#define NORMD_SKIP_UNWATCHED() \
  if (!BlockWatch::Works()) GTEST_SKIP() << "the sanitizer has a malloc of its own"

void ExpectCost(const Case& of) {
  for (const size_t x_bytes : kTensorBytes) {
    v1::NormalizeRequest request;
    of.fill(x_bytes, &request);
    for (const Kind kind : {Kind::kUnary, Kind::kBatch, Kind::kStream}) {
      SCOPED_TRACE(testing::Message() << of.name << ", " << x_bytes << " bytes, kind " << static_cast<int>(kind));
      const size_t items = kind == Kind::kBatch ? kItems : 1;
      const Cost cost = Measure(kind, request);
      EXPECT_EQ(cost.allocations, std::vector<size_t>());
      EXPECT_EQ(cost.pool_bytes, items * of.blocks * x_bytes);
      // Rows that lie in two pieces are put together, each for itself, and small images have sums and statistics for
      // every few elements.
      EXPECT_LT(cost.copied_bytes, items * (of.copies * x_bytes + x_bytes / 2));
      EXPECT_GE(cost.copied_bytes, items * of.copies * x_bytes);
    }
  }
}

TEST(LargeBlocksTest, RowsAreReadWhereTheTransportPutThemAndYIsTheOnlyBlock) {
  NORMD_SKIP_UNWATCHED();
  for (const Case& each : RowsCases()) ExpectCost(each);
}

TEST(LargeBlocksTest, WhatIsNeededInOnePieceIsCopiedOnceIntoThePool) {
  NORMD_SKIP_UNWATCHED();
  for (const Case& each : ContiguousCases()) ExpectCost(each);
}

TEST(LargeBlocksTest, AResidualWhoseSumIsReturnedTakesABlockOfThePoolForEachTensor) {
  NORMD_SKIP_UNWATCHED();
  ExpectCost(ResidualCase());
}

// What kernels/cpu/run_job.cc takes from malloc: kernels know no pool. Exceptions to mend there; then the blocks here
// go.
TEST(LargeBlocksTest, KnownExceptionsAreTheScratchOfResidualsAndOfPermutedPlans) {
  NORMD_SKIP_UNWATCHED();
  const size_t x_bytes = kTensorBytes[0];
  v1::NormalizeRequest residual;
  RowsCases()[1].fill(x_bytes, &residual);
  *residual.mutable_residual()->mutable_tensor() = residual.x();
  // h, which nobody asked for.
  EXPECT_EQ(Measure(Kind::kUnary, residual).allocations, std::vector<size_t>({x_bytes}));
  // h in f64.
  residual.mutable_residual()->set_rounding(v1::RESIDUAL_ROUNDING_KEEP_WIDE);
  EXPECT_EQ(Measure(Kind::kUnary, residual).allocations, std::vector<size_t>({2 * x_bytes}));
  // x and y with their axes in another order, and x once more as it was given.
  v1::NormalizeRequest permuted;
  permuted.mutable_spec()->mutable_layer_norm()->add_axes(0);
  permuted.mutable_spec()->mutable_layer_norm()->add_axes(2);
  Fill({8, 16, 8, Rows(x_bytes, 1024)}, 1, permuted.mutable_x());
  EXPECT_EQ(Measure(Kind::kUnary, permuted).allocations, std::vector<size_t>({x_bytes, x_bytes, x_bytes}));
}

TEST(LargeBlocksTest, ThePlantedBlockAndThePlantedCopyAreSeen) {
  NORMD_SKIP_UNWATCHED();
  const std::string tensor(kMiB, 'x');
  const BlockWatch watch(kMiB / 4);
  const std::string copy(tensor);
  ::operator delete(::operator new(kMiB / 4));  // as calls, which the compiler may not leave out
  const Buffer buffer(2 * kMiB);
  EXPECT_EQ(copy.back(), 'x');
  const std::vector<size_t> seen = watch.Allocations();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_GE(seen[0], kMiB);
  EXPECT_EQ(seen[1], kMiB / 4);
  EXPECT_GE(seen[2], 2 * kMiB);
  EXPECT_GE(watch.CopiedBytes(), kMiB);
}

// The whole path would notice: a message that only the full parser reads has its tensor copied into a string.
TEST(LargeBlocksTest, AMessageOffTheFastPathIsCaught) {
  NORMD_SKIP_UNWATCHED();
  v1::NormalizeRequest request;
  RowsCases()[1].fill(kMiB, &request);
  request.set_session(std::string(2 << 18, 's'));  // more metadata than Split takes; the spec after it wins
  const std::string spec_again("\x0a\x02\x2a\x00", 4);
  const std::string bytes = request.SerializeAsString() + spec_again;
  const MessageBytes received{Slice(bytes)};
  Path path;
  path.Normalize(received);
  const BlockWatch watch(kMiB);
  path.Normalize(received);
  EXPECT_FALSE(watch.Allocations().empty());
  EXPECT_GE(watch.CopiedBytes(), kMiB);
}

}  // namespace
}  // namespace normd::rpc

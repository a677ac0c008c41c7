// SyncBN by RPC: the exact moments of several workers, committed as one step, leave the state of one worker that has
// the whole batch, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/sessions_fixture.h"
#include "tests/support/random.h"

namespace normd::e2e {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kRows = 64;
constexpr int64_t kChannels = 3;

size_t BytesPerElement(v1::DType dtype) { return dtype == v1::DTYPE_F64 ? 8 : dtype == v1::DTYPE_F32 ? 4 : 2; }

// Elements that f64 sums do not add up exactly: far from 0, of many sizes, and of both signs.
std::string RandomRows(v1::DType dtype, Random& random) {
  std::string bytes;
  for (int64_t i = 0; i < kRows * kChannels; ++i) {
    const double value = 1e4 + std::ldexp(random.Normal(), static_cast<int>(random.Below(40)));
    const auto narrow = static_cast<float>(value);
    const auto upper = static_cast<uint16_t>(std::bit_cast<uint32_t>(narrow) >> 16);
    if (dtype == v1::DTYPE_F64) bytes.append(reinterpret_cast<const char*>(&value), 8);
    if (dtype == v1::DTYPE_F32) bytes.append(reinterpret_cast<const char*>(&narrow), 4);
    if (dtype == v1::DTYPE_BF16) bytes.append(reinterpret_cast<const char*>(&upper), 2);
  }
  return bytes;
}

class ExactMomentsTest : public SessionsTest {
 protected:
  void CreateOfThree(const std::string& id, bool counts_samples) {
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    v1::BatchNorm* const batch_norm = request.mutable_session()->mutable_spec()->mutable_batch_norm();
    batch_norm->set_layout(v1::LAYOUT_CHANNELS_LAST);
    if (counts_samples) batch_norm->mutable_running()->set_weighting(v1::WEIGHTING_SAMPLES);
    request.mutable_session()->set_num_channels(kChannels);
    v1::Session session;
    const grpc::Status status = Create(request, &session);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  // Of these rows of `bytes`, for the session.
  v1::Moments Compute(const std::string& id, v1::DType dtype, const std::string& bytes,
                      const std::vector<int64_t>& rows) {
    v1::ComputeMomentsRequest request;
    request.set_session("sessions/" + id);
    request.set_want_exact(true);
    v1::Tensor* const x = request.mutable_x();
    x->set_dtype(dtype);
    x->add_shape(static_cast<int64_t>(rows.size()));
    x->add_shape(kChannels);
    const size_t row_bytes = kChannels * BytesPerElement(dtype);
    for (const int64_t row : rows) x->mutable_data()->append(bytes, static_cast<size_t>(row) * row_bytes, row_bytes);
    v1::ComputeMomentsResponse response;
    grpc::ClientContext context;
    const grpc::Status status = server_.normalizer().ComputeMoments(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.moments();
  }

  void CommitAll(const std::string& id, const std::vector<v1::Moments>& parts) {
    v1::CommitMomentsRequest request;
    request.set_session("sessions/" + id);
    for (const v1::Moments& part : parts) *request.add_moments() = part;
    v1::StateResult result;
    const grpc::Status status = Commit(request, &result);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(result.applied());
  }

  std::string StateOf(const std::string& id) { return Get(id).state().SerializeAsString(); }
};

template <typename T>
void Shuffle(std::vector<T>& values, Random& random) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
  }
}

TEST_F(ExactMomentsTest, AnyCutInAnyOrderLeavesTheStateOfOneBatch) {
  Random random(TestSeed() + 1);
  std::vector<int64_t> all(kRows);
  for (int64_t i = 0; i < kRows; ++i) all[static_cast<size_t>(i)] = i;
  for (const v1::DType dtype : {v1::DTYPE_F32, v1::DTYPE_BF16, v1::DTYPE_F64}) {
    for (const bool counts_samples : {false, true}) {
      const std::string name = v1::DType_Name(dtype).substr(6) + (counts_samples ? "-samples" : "-steps");
      std::string lower = name;
      std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return std::tolower(c); });
      SCOPED_TRACE(lower);
      const std::string bytes[2] = {RandomRows(dtype, random), RandomRows(dtype, random)};
      CreateOfThree(lower, counts_samples);
      for (const std::string& batch : bytes) CommitAll(lower, {Compute(lower, dtype, batch, all)});
      const std::string want = StateOf(lower);
      for (int round = 0; round < 50; ++round) {
        const std::string id = lower + "-" + std::to_string(round);
        CreateOfThree(id, counts_samples);
        for (const std::string& batch : bytes) {
          const int64_t workers = 1 + random.Below(7);
          std::vector<std::vector<int64_t>> rows(static_cast<size_t>(workers));
          for (const int64_t row : all) rows[static_cast<size_t>(random.Below(workers))].push_back(row);
          std::vector<v1::Moments> parts;
          for (std::vector<int64_t>& part : rows) {
            Shuffle(part, random);
            parts.push_back(Compute(id, dtype, batch, part));
          }
          Shuffle(parts, random);
          CommitAll(id, parts);
        }
        EXPECT_EQ(StateOf(id), want) << round;
      }
    }
  }
}

// Without the sums the same cuts leave other states: the test above tells the two rules apart.
TEST_F(ExactMomentsTest, WithoutTheSumsTheStateDependsOnTheCut) {
  Random random(TestSeed() + 3);
  const std::string bytes = RandomRows(v1::DTYPE_F32, random);
  std::set<std::string> states;
  for (int64_t cut = 1; cut < kRows; ++cut) {
    std::vector<int64_t> rows[2];
    for (int64_t row = 0; row < kRows; ++row) rows[row < cut ? 0 : 1].push_back(row);
    const std::string id = "cut-" + std::to_string(cut);
    CreateOfThree(id, false);
    std::vector<v1::Moments> parts = {Compute(id, v1::DTYPE_F32, bytes, rows[0]),
                                      Compute(id, v1::DTYPE_F32, bytes, rows[1])};
    parts[1].clear_exact();
    CommitAll(id, parts);
    states.insert(StateOf(id));
  }
  EXPECT_GT(states.size(), 1u);
}

TEST_F(ExactMomentsTest, TheBytesAreAskedForAndHaveTheirSize) {
  CreateOfThree("s", false);
  EXPECT_EQ(Compute("s", v1::DTYPE_F32, std::string(24, '\0'), {0, 1}).exact().size(), 8u + 3 * 136);
  EXPECT_EQ(Compute("s", v1::DTYPE_F64, std::string(48, '\0'), {0, 1}).exact().size(), 8u + 3 * 816);
  v1::ComputeMomentsRequest request;
  request.set_session("sessions/s");
  SetTensor({2, 3}, {1, 2, 3, 4, 5, 6}, request.mutable_x());
  v1::ComputeMomentsResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(server_.normalizer().ComputeMoments(&context, request, &response).ok());
  EXPECT_FALSE(response.moments().has_exact());
  EXPECT_THAT(Values<double>(response.moments().mean()), ElementsAre(2.5, 3.5, 4.5));
}

TEST_F(ExactMomentsTest, PowerNormHasNone) {
  v1::ComputeMomentsRequest request;
  request.mutable_spec()->mutable_power_norm();
  request.set_want_exact(true);
  SetTensor({2, 3}, {1, 2, 3, 4, 5, 6}, request.mutable_x());
  v1::ComputeMomentsResponse response;
  grpc::ClientContext context;
  const grpc::Status status = server_.normalizer().ComputeMoments(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(status), "want_exact") << status.error_message();
}

TEST_F(ExactMomentsTest, BytesThatAreNoSumsOfTheMomentsAreRefused) {
  struct Hostile {
    std::string field;
    std::function<void(v1::Moments&)> spoil;
  };
  const auto with = [](size_t at, char value) {
    return [at, value](v1::Moments& moments) { moments.mutable_exact()->at(at) = value; };
  };
  const std::vector<Hostile> mistakes = {
      {"moments[1].exact", [](auto& m) { m.set_exact(""); }},
      {"moments[1].exact", [](auto& m) { m.mutable_exact()->pop_back(); }},
      {"moments[1].exact", with(7, '\xFF')},  // four billion channels
      {"moments[1].exact.version", with(0, 2)},
      {"moments[1].exact.range", with(1, 3)},
      {"moments[1].exact", with(1, 2)},  // wide, of the narrow one's length
      {"moments[1].exact.reserved", with(2, 1)},
      {"moments[1].exact.channels[0].count", with(14, 0x7F)},
      {"moments[1].exact.channels[0].sum", with(16 + 47, 0x40)},
      {"moments[1].exact.channels[0].squares", with(16 + 48 + 79, '\x80')},
      {"moments[1].mean[0]",
       [](auto& m) {
         SetF64({1, 2, 3}, m.mutable_mean());
       }},
      {"moments[1].samples",
       [](auto& m) {
         SetF64({2, 2, 2}, m.mutable_samples());
       }},
      {"moments[1]",
       [](auto& m) {
         for (v1::Tensor* tensor : {m.mutable_count(), m.mutable_mean(), m.mutable_m2()}) SetF64({2, 2}, tensor);
       }},
  };
  Random random(TestSeed() + 2);
  CreateOfThree("s", false);
  const v1::Moments part = Compute("s", v1::DTYPE_F32, RandomRows(v1::DTYPE_F32, random), {0, 1, 2, 3, 4});
  for (const Hostile& mistake : mistakes) {
    v1::CommitMomentsRequest request;
    request.set_session("sessions/s");
    *request.add_moments() = part;
    *request.add_moments() = part;
    mistake.spoil(*request.mutable_moments(1));
    v1::StateResult result;
    const grpc::Status status = Commit(request, &result);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << mistake.field;
    EXPECT_EQ(FieldOf(status), mistake.field) << status.error_message();
  }
  EXPECT_EQ(Get("s").version(), 0u);
}

}  // namespace
}  // namespace normd::e2e

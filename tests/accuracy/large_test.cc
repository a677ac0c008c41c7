// Tensors of 2^31 + 7 elements, rows longer than 2^24: every index is 64 bits wide. 2^31 + 7 is 45 * 47,721,859, so one
// f16 tensor of 4 GiB is seen as short rows, as 45 rows longer than 2^24, as one row and as long columns. Values are
// made by index, integers, so that sums are exact in integers; elements are judged at the ends, beside 2^31 and 2^32
// bytes, and at random. Runs with NORMD_TEST_FULL=1 (tests/run.sh --full) only: 9 GiB of memory and a minute.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/accuracy/judge.h"
#include "tests/support/environment.h"
#include "tests/support/random.h"

namespace normd::accuracy {
namespace {

using oracle::Wide;

constexpr int64_t kElements = (int64_t{1} << 31) + 7;
constexpr int64_t kShort = 45, kLong = kElements / kShort;
static_assert(kShort * kLong == kElements && kLong > int64_t{1} << 24);
constexpr int64_t kNeededBytes = 2 * 2 * kElements + (int64_t{512} << 20);

// Memory that is there when it is touched; swap is never counted on.
class Mapping {
 public:
  explicit Mapping(int64_t size_bytes) : size_(static_cast<size_t>(size_bytes)) {
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = at == MAP_FAILED ? nullptr : static_cast<uint16_t*>(at);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, size_);
  }
  uint16_t* data() { return data_; }

 private:
  size_t size_;
  uint16_t* data_ = nullptr;
};

// x[i]: an integer from 500 to 523, exact in f16, by all 64 bits of the index.
int64_t ValueAt(int64_t i) {
  return 500 + static_cast<int64_t>((static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15) >> 59) * 3 / 4;
}

struct IntegerSums {
  int64_t count = 0, sum = 0, squares = 0;  // at most 2^31 * 2^19
  void Add(int64_t v) {
    ++count;
    sum += v;
    squares += v * v;
  }
};

class LargeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Environment("NORMD_TEST_FULL").empty()) {
      GTEST_SKIP() << "4 GiB in and 4 GiB out: only with NORMD_TEST_FULL=1 (tests/run.sh --full)";
    }
    const int64_t available = int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    if (available < kNeededBytes) {
      GTEST_SKIP() << "needs " << (kNeededBytes >> 20) << " MiB of free memory; there are " << (available >> 20);
    }
    x_ = std::make_unique<Mapping>(2 * kElements);
    y_ = std::make_unique<Mapping>(2 * kElements);
    ASSERT_TRUE(x_->data() != nullptr && y_->data() != nullptr);
    uint16_t bits[24];
    for (int v = 0; v < 24; ++v) bits[v] = static_cast<uint16_t>(oracle::Encode(oracle::Type::kF16, 500 + v));
    for (int64_t i = 0; i < kElements; ++i) x_->data()[i] = bits[ValueAt(i) - 500];
  }

  // Runs the case over x_ into y_; moments of few groups into moments_.
  void Run(const NormSpec& spec, std::vector<int64_t> shape, Precision precision) {
    Case c = cases::With(cases::On(spec, std::move(shape)), DType::kF16);
    c.options.precision = precision;
    const absl::StatusOr<NormPlan> plan = PlanOf(c);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->elements, kElements);
    name_ = c.Name();
    bound_ = BoundOf(*plan, c.dtype);
    const std::unique_ptr<Backend> backend = MakeCpuBackend({});
    Job job;
    job.plan = &*plan;
    job.x = x_->data();
    job.y = y_->data();
    if (plan->StatisticsGroups() <= kShort) moments_.resize(static_cast<size_t>(plan->StatisticsGroups()));
    if (!moments_.empty()) job.moments = moments_.data();
    const absl::Status status = RunJobs(*backend, {job});
    ASSERT_TRUE(status.ok()) << status;
  }

  // y of element i, given the sums of its group.
  void ExpectElement(int64_t i, const IntegerSums& sums, bool centred, double eps) {
    const Wide mean = centred ? Wide(sums.sum) / sums.count : Wide(0);
    const Wide mean_square = Wide(sums.squares) / sums.count - mean * mean;
    const Wide want = (ValueAt(i) - mean) / oracle::Sqrt(mean_square + Wide(eps));
    const Wide got = oracle::Load(oracle::Type::kF16, y_->data(), i);
    const double error = oracle::ErrorUlp(oracle::Type::kF16, got, want, oracle::BoundScale(bound_, want, 0, 1));
    ASSERT_LE(error, bound_.ulp) << name_ << " y[" << i << "]: got " << static_cast<double>(got) << ", want "
                                 << static_cast<double>(want);
  }

  void ExpectMoment(size_t group, const IntegerSums& sums) {
    const Wide mean = Wide(sums.sum) / sums.count, m2 = Wide(sums.squares) - mean * sums.sum;
    const oracle::GroupStatistics want = {
        .count = sums.count, .mean = mean, .m2 = m2, .deviation = oracle::Sqrt(m2 / sums.count), .inverse = 0};
    const Moment& got = moments_[group];
    EXPECT_EQ(oracle::CompareMoment(name_, bound_, want, got.count, got.mean, got.m2), "");
  }

  // Elements worth a look: the ends, beside powers of two of elements and of bytes, and a thousand others.
  static std::vector<int64_t> Samples() {
    std::vector<int64_t> samples;
    for (const int64_t at : {int64_t{0}, int64_t{1} << 24, int64_t{1} << 30, int64_t{1} << 31, kLong, kElements - 4}) {
      for (int64_t i = at - 3; i <= at + 3; ++i) {
        if (i >= 0 && i < kElements) samples.push_back(i);
      }
    }
    Random random(31);
    for (int i = 0; i < 1000; ++i) samples.push_back(random.Below(kElements));
    return samples;
  }

  std::unique_ptr<Mapping> x_, y_;
  Moments moments_;
  std::string name_;
  oracle::Bound bound_;
};

constexpr Precision kPrecisions[] = {Precision::kExact, Precision::kFast};

TEST_F(LargeTest, MoreThanTwoToThe31ElementsInShortRows) {
  for (const Precision precision : kPrecisions) {
    ASSERT_NO_FATAL_FAILURE(Run(cases::Of(Method::kRmsNorm), {kLong, kShort}, precision));
    for (const int64_t i : Samples()) {
      IntegerSums row;
      for (int64_t j = i / kShort * kShort; j < (i / kShort + 1) * kShort; ++j) row.Add(ValueAt(j));
      ASSERT_NO_FATAL_FAILURE(ExpectElement(i, row, false, 1e-6));
    }
  }
}

TEST_F(LargeTest, RowsLongerThanTwoToThe24) {
  std::vector<IntegerSums> rows(kShort);
  for (int64_t i = 0; i < kElements; ++i) rows[static_cast<size_t>(i / kLong)].Add(ValueAt(i));
  for (const Precision precision : kPrecisions) {
    ASSERT_NO_FATAL_FAILURE(Run(cases::Over({kLong}), {kShort, kLong}, precision));
    for (size_t row = 0; row < rows.size(); ++row) ExpectMoment(row, rows[row]);
    for (const int64_t i : Samples()) {
      ASSERT_NO_FATAL_FAILURE(ExpectElement(i, rows[static_cast<size_t>(i / kLong)], true, 1e-5));
    }
  }
}

TEST_F(LargeTest, OneRowOfMoreThanTwoToThe31Elements) {
  IntegerSums all;
  for (int64_t i = 0; i < kElements; ++i) all.Add(ValueAt(i));
  for (const Precision precision : kPrecisions) {
    ASSERT_NO_FATAL_FAILURE(Run(cases::Over({kElements}), {1, kElements}, precision));
    ExpectMoment(0, all);
    for (const int64_t i : Samples()) ASSERT_NO_FATAL_FAILURE(ExpectElement(i, all, true, 1e-5));
  }
}

TEST_F(LargeTest, ColumnsLongerThanTwoToThe24) {
  std::vector<IntegerSums> columns(kShort);
  for (int64_t i = 0; i < kElements; ++i) columns[static_cast<size_t>(i % kShort)].Add(ValueAt(i));
  for (const Precision precision : kPrecisions) {
    ASSERT_NO_FATAL_FAILURE(Run(cases::Of(Method::kBatchNorm, Layout::kChannelsLast), {kLong, kShort}, precision));
    for (size_t c = 0; c < columns.size(); ++c) ExpectMoment(c, columns[c]);
    for (const int64_t i : Samples()) {
      ASSERT_NO_FATAL_FAILURE(ExpectElement(i, columns[static_cast<size_t>(i % kShort)], true, 1e-5));
    }
  }
}

}  // namespace
}  // namespace normd::accuracy

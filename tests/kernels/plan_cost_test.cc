// What planning costs: nothing in proportion to a tensor, which a caller may have announced in a few bytes and never
// send. Allocations are counted by an operator new of this file, which that of arrays calls
// (tests/support/failing_new.cc).
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/plan.h"
#include "tests/kernels/allocated_bytes.h"
#include "tests/kernels/cases.h"

namespace {

std::atomic<int64_t> allocated_bytes{0};

void* Allocate(std::size_t size) noexcept {
  allocated_bytes += static_cast<int64_t>(size);
  return std::malloc(size == 0 ? 1 : size);
}

}  // namespace

void* operator new(std::size_t size) {
  void* const memory = Allocate(size);
  if (memory == nullptr) std::abort();
  return memory;
}
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept { return Allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace normd {

int64_t AllocatedBytes() { return allocated_bytes; }

namespace {

using Dims = cases::Dims;

constexpr int64_t kMaxBytes = 64 * 1024;
constexpr double kMaxSeconds = 1;  // only so that nobody waits: the figure is recorded

// Every method on shapes of 2^40 elements, axes in order and not, with and without a permutation.
std::vector<Case> LargeCases() {
  std::vector<Case> large;
  const Dims flat = {int64_t{1} << 20, int64_t{1} << 20};
  const Dims image = {1 << 10, 1 << 10, 1 << 10, 1 << 10};
  const Dims narrow = {32, 32, 32, 32, 32, 32, 32, 32};
  for (const Layout layout : cases::kLayouts) {
    for (const Method method : {Method::kBatchNorm, Method::kInstanceNorm}) {
      large.push_back(cases::On(cases::Of(method, layout), image));
      large.push_back(cases::On(cases::Of(method, layout), flat));
    }
    large.push_back(cases::On(cases::Of(Method::kBatchNorm, layout), image, true));
    for (const int64_t groups : {1, 32, 1 << 10}) large.push_back(cases::On(cases::Group(groups, layout), image));
  }
  for (const Method method : {Method::kLayerNorm, Method::kRmsNorm}) {
    large.push_back(cases::On(cases::Over(flat, method), flat));
    for (const Dims& axes : {Dims{0, 1}, Dims{1, 0}}) large.push_back(cases::On(cases::Axes(method, axes), flat));
    for (const Dims& axes :
         {Dims{1, 2, 3}, Dims{3, 2, 1}, Dims{3, 1}, Dims{2, 0}, Dims{0, 1, 2, 3}, Dims{3, 0, 2, 1}}) {
      large.push_back(cases::On(cases::Axes(method, axes), image));
    }
    for (const Dims& axes : {Dims{7, 6, 5, 4, 3, 2, 1, 0}, Dims{7, 5, 3, 1}, Dims{0, 2, 4, 6}, Dims{6, 1, 4}}) {
      large.push_back(cases::On(cases::Axes(method, axes), narrow));
    }
  }
  for (const Dims& shape : {flat, image, Dims{int64_t{1} << 40}}) {
    large.push_back(cases::On(cases::Of(Method::kScaleNorm), shape));
    large.push_back(cases::On(cases::PartialP(0.07), shape));
    for (const int64_t order : {1, 2}) large.push_back(cases::On(cases::Lp(order), shape));
  }
  large.push_back(cases::On(cases::Lp(2, 1), image));
  for (const bool given : {false, true}) {
    for (const int64_t groups : {1, 1 << 10}) large.push_back(cases::On(cases::Power(groups), flat, given));
  }
  return large;
}

TEST(PlanCostTest, PlanningAllocatesNothingInProportionToTheTensor) {
  int64_t most_bytes = 0;
  double most_seconds = 0;
  for (const DType dtype : kAllDTypes) {
    for (const Case& base : LargeCases()) {
      const Case c = cases::With(base, dtype);
      ASSERT_EQ(ElementCount(c.shape), int64_t{1} << 40) << c.Name();
      const int64_t before = allocated_bytes;
      const auto start = std::chrono::steady_clock::now();
      const absl::StatusOr<NormPlan> plan = MakePlan(c.spec, c.dtype, c.shape, c.options);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      const int64_t bytes = allocated_bytes - before;
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_LE(bytes, kMaxBytes) << c.Name();
      EXPECT_LE(seconds.count(), kMaxSeconds) << c.Name();
      most_bytes = std::max(most_bytes, bytes);
      most_seconds = std::max(most_seconds, seconds.count());
    }
  }
  RecordProperty("most_bytes", static_cast<int>(most_bytes));
  RecordProperty("most_microseconds", static_cast<int>(most_seconds * 1e6));
}

// The count itself can fail.
TEST(PlanCostTest, AnAllocationIsCounted) {
  const int64_t before = allocated_bytes;
  const std::vector<int64_t> order(1 << 20);
  EXPECT_GE(allocated_bytes - before, static_cast<int64_t>(order.size() * sizeof(int64_t)));
}

}  // namespace
}  // namespace normd

#include "server/rpc/transport/admission.h"

#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "tests/support/constants.h"

namespace normd::rpc {
namespace {

std::string FieldOf(const absl::Status& status) {
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail.has_value() ? detail->field : "";
}

class AdmissionTest : public testing::Test {
 protected:
  absl::StatusOr<Reservation> Reserve(int64_t bytes, const std::string& caller) {
    return admission_.Reserve(bytes, [&] {
      ++asked_;
      return caller;
    });
  }

  int64_t seen_ = 0;
  int asked_ = 0;  // how often somebody wanted to know the caller
  Admission admission_{{.max_bytes = 10 * kMiB, .max_caller_bytes = 6 * kMiB}, [this](int64_t held) { seen_ = held; }};
};

TEST_F(AdmissionTest, HoldsBytesAsLongAsTheReservationLives) {
  {
    const absl::StatusOr<Reservation> held = Reserve(kMiB, "a");
    ASSERT_TRUE(held.ok());
    EXPECT_EQ(admission_.held_bytes(), kMiB);
    EXPECT_EQ(seen_, kMiB);
  }
  EXPECT_EQ(admission_.held_bytes(), 0);
  EXPECT_EQ(seen_, 0);
}

TEST_F(AdmissionTest, RefusesWhatDoesNotFitTheServerAndHoldsNothingOfIt) {
  const absl::StatusOr<Reservation> a = Reserve(5 * kMiB, "a");
  const absl::StatusOr<Reservation> b = Reserve(4 * kMiB, "b");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(FieldOf(Reserve(2 * kMiB, "c").status()), "bytes_in_flight");
  EXPECT_EQ(admission_.held_bytes(), 9 * kMiB);
  EXPECT_TRUE(Reserve(kMiB, "c").ok());
}

TEST_F(AdmissionTest, RefusesWhatDoesNotFitTheCallerAndServesTheOthers) {
  const absl::StatusOr<Reservation> held = Reserve(5 * kMiB, "a");
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(FieldOf(Reserve(2 * kMiB, "a").status()), "bytes_in_flight_of_caller");
  EXPECT_EQ(admission_.held_bytes(), 5 * kMiB);
  EXPECT_TRUE(Reserve(2 * kMiB, "b").ok());
  EXPECT_TRUE(Reserve(kMiB, "a").ok());
}

TEST_F(AdmissionTest, ForgetsACallerThatHoldsNothing) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Reserve(6 * kMiB, "a").ok()) << i;
  }
}

TEST_F(AdmissionTest, AsksWhoCallsOnlyForWhatCounts) {
  EXPECT_TRUE(Reserve(Admission::kCountedBytes - 1, "a").ok());
  EXPECT_EQ(asked_, 0);
  EXPECT_TRUE(Reserve(Admission::kCountedBytes, "a").ok());
  EXPECT_EQ(asked_, 1);
}

TEST_F(AdmissionTest, AReservationGrowsAndShrinks) {
  absl::StatusOr<Reservation> held = Reserve(1000, "a");
  ASSERT_TRUE(held.ok());
  const auto caller = [] { return std::string("a"); };
  EXPECT_TRUE(held->Resize(5 * kMiB, caller).ok());
  EXPECT_EQ(admission_.held_bytes(), 5 * kMiB);
  EXPECT_EQ(FieldOf(held->Resize(7 * kMiB, caller)), "bytes_in_flight_of_caller");
  EXPECT_EQ(held->bytes(), 5 * kMiB);
  EXPECT_EQ(admission_.held_bytes(), 5 * kMiB);
  EXPECT_EQ(FieldOf(held->Resize(11 * kMiB, caller)), "bytes_in_flight");
  EXPECT_TRUE(held->Resize(10, caller).ok());
  EXPECT_EQ(admission_.held_bytes(), 10);
  EXPECT_TRUE(Reserve(6 * kMiB - 10, "a").ok()) << "what was given back is free for the caller, too";
}

TEST_F(AdmissionTest, CountsRightUnderSeveralThreads) {
  std::vector<std::thread> threads;
  Admission admission({.max_bytes = 10 * kMiB, .max_caller_bytes = 6 * kMiB}, nullptr);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&admission, t] {
      const auto caller = [t] { return std::string(1, static_cast<char>('a' + t % 2)); };
      for (int i = 0; i < 2000; ++i) {
        absl::StatusOr<Reservation> held = admission.Reserve(i * 997 % (4 * kMiB), caller);
        if (held.ok()) held->Resize(i * 31 % kMiB, caller).IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admission.held_bytes(), 0);
  EXPECT_TRUE(admission.Reserve(6 * kMiB, [] { return std::string("a"); }).ok());
}

}  // namespace
}  // namespace normd::rpc

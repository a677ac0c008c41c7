#include "server/rpc/edge/admission.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "server/base/errors.h"
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
      return CallerName{caller, ""};
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

TEST_F(AdmissionTest, RefusesACallBeyondTheBudgetAndReservesNothingForIt) {
  const absl::StatusOr<Reservation> a = Reserve(5 * kMiB, "a");
  const absl::StatusOr<Reservation> b = Reserve(4 * kMiB, "b");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(FieldOf(Reserve(2 * kMiB, "c").status()), "bytes_in_flight");
  EXPECT_EQ(admission_.held_bytes(), 9 * kMiB);
  EXPECT_TRUE(Reserve(kMiB, "c").ok());
}

TEST_F(AdmissionTest, RefusesACallBeyondItsCallersShareAndServesOthers) {
  const absl::StatusOr<Reservation> held = Reserve(5 * kMiB, "a");
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(FieldOf(Reserve(2 * kMiB, "a").status()), "bytes_in_flight_of_caller");
  EXPECT_EQ(admission_.held_bytes(), 5 * kMiB);
  EXPECT_TRUE(Reserve(2 * kMiB, "b").ok());
  EXPECT_TRUE(Reserve(kMiB, "a").ok());
}

TEST_F(AdmissionTest, AnItemCountsItsOverheadBesideItsBytes) {
  const absl::StatusOr<Reservation> item = admission_.ReserveItem(1, [] { return CallerName(); });
  ASSERT_TRUE(item.ok());
  EXPECT_EQ(admission_.held_bytes(), Admission::kMinItemBytes);
}

TEST_F(AdmissionTest, ItemsLeaveTheRoomOfSmallCallsToCalls) {
  std::vector<Reservation> items;
  while (true) {
    absl::StatusOr<Reservation> item = admission_.ReserveItem(1, [] { return CallerName(); });
    if (!item.ok()) break;
    items.push_back(*std::move(item));
  }
  EXPECT_EQ(admission_.held_bytes(), 10 * kMiB);
  EXPECT_TRUE(Reserve(100'000, "a").ok());
}

TEST_F(AdmissionTest, ForgetsACallerThatHoldsNothing) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Reserve(6 * kMiB, "a").ok()) << i;
  }
}

TEST_F(AdmissionTest, LooksUpTheCallerOnlyForCallsThatCount) {
  EXPECT_TRUE(Reserve(Admission::kCountedBytes - 1, "a").ok());
  EXPECT_EQ(asked_, 0);
  EXPECT_TRUE(Reserve(Admission::kCountedBytes, "a").ok());
  EXPECT_EQ(asked_, 1);
}

TEST_F(AdmissionTest, AReservationGrowsAndShrinks) {
  absl::StatusOr<Reservation> held = Reserve(1000, "a");
  ASSERT_TRUE(held.ok());
  const auto caller = [] { return CallerName{"a", ""}; };
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

TEST(AdmissionOfTenantsTest, AQuotaCountsAllConnectionsOfATenantAndNobodyElses) {
  TenantQuotaTable quotas;
  quotas.Set({{"a", {.max_in_flight_bytes = 3 * kMiB}}});
  Admission admission({.max_bytes = 100 * kMiB, .max_caller_bytes = 50 * kMiB}, nullptr, &quotas);
  const auto reserve = [&](int64_t bytes, const char* connection, const char* tenant) {
    return admission.Reserve(bytes, [&] { return CallerName{connection, tenant}; });
  };
  absl::StatusOr<Reservation> one = reserve(2 * kMiB, "1", "a");
  ASSERT_TRUE(one.ok());
  const absl::Status refused = reserve(2 * kMiB, "2", "a").status();
  EXPECT_EQ(FieldOf(refused), "bytes_in_flight_of_tenant");
  EXPECT_TRUE(MayPassLater(refused));
  const absl::Status never = reserve(4 * kMiB, "2", "a").status();
  EXPECT_EQ(FieldOf(never), "bytes_in_flight_of_tenant");
  EXPECT_FALSE(MayPassLater(never));
  EXPECT_EQ(admission.held_bytes(), 2 * kMiB) << "what was refused holds nothing";
  const absl::StatusOr<Reservation> two = reserve(kMiB, "2", "a"), other = reserve(20 * kMiB, "1", "b"),
                                    nobody = reserve(20 * kMiB, "1", "");
  EXPECT_TRUE(two.ok() && other.ok() && nobody.ok());
  EXPECT_TRUE(reserve(Admission::kCountedBytes - 1, "3", "a").ok()) << "small calls do not count";
  EXPECT_THAT(
      admission.bytes_by_tenant(),
      testing::ElementsAre(testing::Pair("", 20 * kMiB), testing::Pair("a", 3 * kMiB), testing::Pair("b", 20 * kMiB)));
  one = Reservation();
  EXPECT_TRUE(reserve(2 * kMiB, "4", "a").ok());
  EXPECT_FALSE(reserve(3 * kMiB, "4", "a").ok());
  EXPECT_THAT(quotas.refusals(), testing::ElementsAre(testing::Pair("a", 3)));
}

TEST_F(AdmissionTest, CountsRightUnderSeveralThreads) {
  std::vector<std::thread> threads;
  Admission admission({.max_bytes = 10 * kMiB, .max_caller_bytes = 6 * kMiB}, nullptr);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&admission, t] {
      const auto caller = [t] { return CallerName{std::string(1, static_cast<char>('a' + t % 2)), ""}; };
      for (int i = 0; i < 2000; ++i) {
        absl::StatusOr<Reservation> held = admission.Reserve(i * 997 % (4 * kMiB), caller);
        if (held.ok()) held->Resize(i * 31 % kMiB, caller).IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admission.held_bytes(), 0);
  EXPECT_TRUE(admission.Reserve(6 * kMiB, [] { return CallerName{"a", ""}; }).ok());
}

}  // namespace
}  // namespace normd::rpc

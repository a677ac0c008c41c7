// Exact sums through the engine: asked for with moments, and committed by several workers.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/exact_sums/group_sums.h"
#include "tests/server/engine/fixtures.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using engine_test::CallTo;
using engine_test::Doubles;
using engine_test::Floats;
using session_test::BatchSpec;
using session_test::CountingSpec;
using session_test::PowerSpec;
using ::testing::ElementsAre;

class ExactMomentsEngineTest : public engine_test::EngineFixture {
 protected:
  std::string Refusal(PooledStep step) {
    const absl::Status status = Commit(std::move(step)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }
  RunningState State(const std::string& id) { return (*session_test::Get(store_, id))->state; }
};

Call ExactCallTo(NormSpec spec, const TensorView& x) {
  Call call = CallTo(std::move(spec), x, Mode::kTraining);
  call.outputs = {OutputKind::kMoments};
  call.moments_only = true;
  call.want_exact = true;
  return call;
}

// A part whose channels have these elements.
MomentsPart PartOf(const std::vector<std::vector<double>>& channels, DType dtype = DType::kF32) {
  GroupSums sums(dtype, channels.size());
  for (size_t c = 0; c < channels.size(); ++c) {
    for (const double x : channels[c]) dtype == DType::kF64 ? sums.wide()[c].Add(x) : sums.narrow()[c].Add(x);
  }
  MomentsPart part = {.moments = sums.NearestMoments(), .details = {}};
  part.details.exact = std::make_shared<const GroupSums>(std::move(sums));
  return part;
}
PooledStep StepOf(const std::string& session, std::vector<MomentsPart> parts) {
  return {.session = session, .parts = std::move(parts), .channel_names = {}};
}

TEST_F(ExactMomentsEngineTest, ComputeMomentsGivesTheSumsAndTheirNearestValues) {
  const Floats x = {{3, 2}, {1e30F, 1, 1, 2, -1e30F, 4}};
  const absl::StatusOr<CallReply> reply = Run(ExactCallTo(BatchSpec(), x.View()));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->exact, *PartOf({{1e30F, 1, -1e30F}, {1, 2, 4}}).details.exact);
  EXPECT_EQ((*reply->moments)[0].mean, 1.0 / 3) << "sums in f64 give 0";
  EXPECT_NE(reply->applied.kernel.find("/exact_sums"), std::string::npos) << reply->applied.kernel;
  Call plain = ExactCallTo(BatchSpec(), x.View());
  plain.want_exact = false;
  EXPECT_EQ(Run(plain)->exact.size(), 0);
}

TEST_F(ExactMomentsEngineTest, WhatHasNoExactSumsIsRefused) {
  const Floats x = {{3, 2}, {1, 2, 3, 4, 5, 6}};
  EXPECT_EQ(Run(ExactCallTo(PowerSpec(10), x.View())).status().message(),
            "want_exact is given, but power_norm has statistics of scaled elements, which are rounded; leave it out");
  EXPECT_EQ(RefusedField(ExactCallTo({.attributes = LpNormSpec{.order = 3}}, x.View())), "spec.lp_norm.order");
  EXPECT_TRUE(Run(ExactCallTo({.attributes = LpNormSpec{.order = 2}}, x.View())).ok());
  Call given = CallTo(BatchSpec(), x.View());
  given.outputs = {OutputKind::kMoments};
  given.want_exact = true;
  EXPECT_EQ(RefusedField(std::move(given)), "outputs") << "the statistics are given";
}

TEST_F(ExactMomentsEngineTest, ManySmallGroupsAreRefused) {
  const auto status = [this](int64_t rows, int64_t length) {
    const Floats x = {{rows, length}, std::vector<float>(static_cast<size_t>(rows * length))};
    return Run(ExactCallTo(engine_test::LayerSpec({length}), x.View())).status();
  };
  EXPECT_TRUE(status(1 << 15, 1).ok());
  EXPECT_TRUE(status((1 << 15) + 1, 64).ok());
  EXPECT_EQ(GetErrorDetail(status((1 << 15) + 1, 63))->field, "x.shape");
  EXPECT_EQ(GetErrorDetail(status((1 << 15) + 1, 0))->limit, "at most 32768");
}

TEST_F(ExactMomentsEngineTest, TheStateIsThatOfOneBatchHoweverItWasCutAndOrdered) {
  Random random(TestSeed() + 1);
  std::vector<std::vector<double>> whole(2);
  for (std::vector<double>& channel : whole) {
    for (int i = 0; i < 60; ++i) channel.push_back(static_cast<float>(1e6 + random.Normal()));
  }
  for (const NormSpec& spec : {BatchSpec(), CountingSpec({.prior_count = 1e-4, .decay = 0.99})}) {
    const std::string name = spec.running().CountsSamples() ? "samples" : "steps";
    CreateSession(name, spec, 2);
    ASSERT_TRUE(Commit(StepOf(name, {PartOf(whole)})).ok());
    for (int round = 0; round < 20; ++round) {
      const std::string id = name + std::to_string(round);
      CreateSession(id, spec, 2);
      // Elements go to one of five parts; a part may be of f64, and may have none.
      std::vector<std::vector<std::vector<double>>> parts(5, std::vector<std::vector<double>>(2));
      for (size_t i = 0; i < 60; ++i) {
        auto& part = parts[static_cast<size_t>(random.Below(5))];
        for (size_t c = 0; c < 2; ++c) part[c].push_back(whole[c][i]);
      }
      std::vector<MomentsPart> made;
      for (const auto& part : parts) made.push_back(PartOf(part, random.Below(3) == 0 ? DType::kF64 : DType::kF32));
      ASSERT_TRUE(Commit(StepOf(id, std::move(made))).ok());
      EXPECT_EQ(State(id).mean, State(name).mean);
      EXPECT_EQ(State(id).var, State(name).var);
    }
  }
}

TEST_F(ExactMomentsEngineTest, InstancesOfSeveralWorkersAreOneBatch) {
  const NormSpec spec = {.attributes = InstanceNormSpec{
                             .layout = Layout::kChannelsFirst,
                             .track_running_statistics = true,
                             .running = {.momentum = 0.3},
                         }};
  for (const std::string id : {"one", "two", "mixed"}) CreateSession(id, spec, 1);
  const std::vector<double> a = {0.1F, 7}, b = {0.7F, 1e9F}, c = {3, 0.3F};
  ASSERT_TRUE(Commit(StepOf("one", {PartOf({a, b, c})})).ok());
  ASSERT_TRUE(Commit(StepOf("two", {PartOf({c}), PartOf({b, a})})).ok());
  ASSERT_TRUE(Commit(StepOf("mixed", {PartOf({b, c}, DType::kF64), PartOf({a})})).ok());
  EXPECT_EQ(State("two").mean, State("one").mean);
  EXPECT_EQ(State("two").var, State("one").var);
  EXPECT_EQ(State("mixed").mean, State("one").mean);
  EXPECT_EQ(State("mixed").var, State("one").var);
}

// Moments that came rounded are pooled as the numbers that they are.
// What decides whether a step is pooled on the thread that answers for the store.
TEST_F(ExactMomentsEngineTest, MomentsThatArePooledAreMoreWorkThanThoseOfOnePart) {
  const MomentsPart part = {.moments = Moments(1000), .details = {}};
  EXPECT_EQ(WorkOf({part}), 1000 * static_cast<int64_t>(sizeof(Moment)));
  EXPECT_GE(WorkOf({part, part}), 10 * 2 * WorkOf({part}));
}

TEST_F(ExactMomentsEngineTest, WithoutSumsNoOrderOfThePartsMatters) {
  Random random(TestSeed() + 2);
  std::vector<MomentsPart> parts;
  for (int part = 0; part < 7; ++part) {
    parts.push_back(
        {.moments = {{1.0 + part, 1e3 + random.Normal(), 1 / 3.0}, {1.0 + part, random.Normal(), 0.1}}, .details = {}});
  }
  const std::pair<std::string, NormSpec> sessions[] = {
      {"batch", BatchSpec({.momentum = 0.3})}, {"samples", CountingSpec()}, {"power", PowerSpec(10)}};
  for (const auto& [name, spec] : sessions) {
    for (int round = 0; round < 20; ++round) {
      const std::string id = name + "-" + std::to_string(round);
      CreateSession(id, spec, 2);
      ASSERT_TRUE(Commit(StepOf(id, parts)).ok());
      EXPECT_EQ(State(id).mean, State(name + "-0").mean);
      EXPECT_EQ(State(id).var, State(name + "-0").var);
      EXPECT_EQ(State(id).phi, State(name + "-0").phi);
      for (size_t i = parts.size(); i > 1; --i) {
        std::swap(parts[i - 1], parts[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
      }
    }
  }
}

TEST_F(ExactMomentsEngineTest, WithoutTheSumsOfOnePartTheMomentsAreTaken) {
  for (const std::string id : {"none", "some", "all"}) CreateSession(id, BatchSpec({.momentum = 1}), 1);
  MomentsPart first = PartOf({{0.1F, 1e9F, 3}}), second = PartOf({{0.7F, -1e9F, 0.3F}});
  ASSERT_TRUE(Commit(StepOf("all", {first, second})).ok());
  second.details.exact = nullptr;
  ASSERT_TRUE(Commit(StepOf("some", {first, second})).ok());
  first.details.exact = nullptr;
  ASSERT_TRUE(Commit(StepOf("none", {first, second})).ok());
  EXPECT_EQ(State("some").mean, State("none").mean);
  EXPECT_NE(State("all").mean, State("none").mean);
}

TEST_F(ExactMomentsEngineTest, ChannelsAreMatchedByTheirNames) {
  Session session = session_test::NewSession("named", BatchSpec({.momentum = 1}), 2);
  session.channel_names = std::make_shared<const std::vector<std::string>>(std::vector<std::string>{"speed", "angle"});
  ASSERT_TRUE(session_test::Create(store_, session).ok());
  PooledStep step = StepOf("named", {PartOf({{1, 3}, {5, 7}})});
  step.channel_names = {"angle", "speed"};
  ASSERT_TRUE(Commit(step).ok());
  EXPECT_THAT(State("named").mean, ElementsAre(6, 2));
}

TEST_F(ExactMomentsEngineTest, AReplayIsAnsweredAndOtherSumsAreRefused) {
  CreateSession("s", BatchSpec(), 1);
  PooledStep step = StepOf("s", {PartOf({{1, 3}}), PartOf({{7}})});
  step.step = StepId{"trainer", 1};
  const absl::StatusOr<PooledReply> first = Commit(step);
  ASSERT_TRUE(first.ok()) << first.status();
  std::swap(step.parts[0], step.parts[1]);
  const absl::StatusOr<PooledReply> again = Commit(step);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->result.replayed);
  EXPECT_EQ(again->result.version, first->result.version);
  step.parts = {PartOf({{1, 4}}), PartOf({{7}})};
  EXPECT_EQ(GetErrorDetail(Commit(step).status())->reason, "STEP_REUSED");
}

TEST_F(ExactMomentsEngineTest, SumsThatContradictTheirMomentsAreRefused) {
  CreateSession("s", BatchSpec(), 2);
  CreateSession("power", PowerSpec(10), 2);
  const auto spoilt = [](auto spoil) {
    MomentsPart part = PartOf({{1, 3}, {5, 9}});
    spoil(part);
    return StepOf("s", {PartOf({{1}, {2}}), std::move(part)});
  };
  EXPECT_EQ(Refusal(spoilt([](MomentsPart& part) { part.moments[1].mean = 7.5; })),
            "moments[1].mean[1] is 7.5; it must be 7, as moments[1].exact says");
  EXPECT_EQ(Refusal(spoilt([](MomentsPart& part) { part.moments[0].count = 3; })),
            "moments[1].count[0] is 3; it must be 2, as moments[1].exact says");
  EXPECT_EQ(Refusal(spoilt([](MomentsPart& part) { part.moments[0].m2 = kNan; })),
            "moments[1].m2[0] is nan; it must be 2, as moments[1].exact says");
  EXPECT_EQ(Refusal(spoilt([](MomentsPart& part) {
              part.details.exact = PartOf({{1, 3}}).details.exact;
            })),
            "moments[1].exact has 1 value; it must have 2");
  EXPECT_EQ(Refusal(spoilt([](MomentsPart& part) {
              part.details.samples = {2, 2};
            })),
            "moments[1].samples is given, but exact sums have no weights; leave it out");
  EXPECT_EQ(Refusal(StepOf("power", {PartOf({{1}, {2}})})),
            "moments[0].exact is given, but power_norm has statistics of scaled elements, which are rounded; leave it "
            "out");
}

TEST_F(ExactMomentsEngineTest, TooManyElementsAreRefused) {
  CreateSession("s", BatchSpec(), 1);
  const auto part_of = [](uint64_t count) {
    GroupSums sums(GroupSums::Narrow{NarrowExactSums::FromParts(count, {}, {}, {})});
    MomentsPart part = {.moments = sums.NearestMoments(), .details = {}};
    part.details.exact = std::make_shared<const GroupSums>(std::move(sums));
    return part;
  };
  EXPECT_EQ(Refusal(StepOf("s", {part_of(kMaxSummed), part_of(1)})),
            "moments[1].exact.channels[0].count is 9007199254740992 + 1; it must be at most 9007199254740992 together");
}

}  // namespace
}  // namespace normd

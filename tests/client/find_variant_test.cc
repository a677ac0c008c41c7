// Which definitions normctl verify --find-variant tries, and how it chooses among them.
#include "client/normctl/find_variant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "client/normctl/variants.h"

namespace normd::client {
namespace {

Variant RmsVariant() {
  Variant out;
  v1::RmsNorm& rms = *out.spec.mutable_rms_norm();
  rms.set_eps(1e-5);
  rms.set_eps_mode(v1::EPS_MODE_INSIDE_SQRT);
  rms.set_cast_order(v1::CAST_ORDER_AFFINE_THEN_CAST);
  return out;
}

std::vector<std::string> NeighboursOf(const Variant& variant, const VariantInput& input) {
  std::vector<std::string> out;
  for (const Variant& neighbour : Neighbours(variant, input)) out.push_back(Differences(neighbour, variant));
  return out;
}

bool Holds(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST(VariantsTest, DifferInOneChoice) {
  const std::vector<std::string> words = NeighboursOf(RmsVariant(), {.shape = {4, 8}, .has_weight = true});
  for (const char* word : {"eps 1e-06", "eps 0", "add_to_root", "clamp_root", "cast_then_affine", "weight_offset 1",
                           "weight_offset 1, 1 + w rounded", "layer_norm, axes 1", "axes 0,1"}) {
    EXPECT_TRUE(Holds(words, word)) << word << " is not among " << testing::PrintToString(words);
  }
  EXPECT_TRUE(Holds(words, "eps 1e-06, add_to_root"));
  EXPECT_FALSE(Holds(words, "variance over n - 1"));  // RMSNorm has no variance
  EXPECT_FALSE(Holds(words, "keep_wide"));            // there is no residual
  EXPECT_TRUE(Holds(NeighboursOf(RmsVariant(), {.shape = {4, 8, 2}}), "axes 1"));
}

TEST(VariantsTest, AChoiceKeepsTheOthers) {
  Variant variant = RmsVariant();
  variant.spec.mutable_rms_norm()->set_weight_offset(1);
  variant.rounds_weight = true;
  variant.residual_rounding = v1::RESIDUAL_ROUNDING_KEEP_WIDE;
  int without = 0, rounded_first = 0;
  const std::vector<Variant> neighbours =
      Neighbours(variant, {.shape = {4, 8, 2}, .has_weight = true, .has_bias = true, .has_residual = true});
  for (const Variant& other : neighbours) {
    without += other.rounds_weight ? 0 : 1;
    rounded_first += other.residual_rounding == v1::RESIDUAL_ROUNDING_ROUND_FIRST ? 1 : 0;
  }
  EXPECT_EQ(without, 2);  // w, and 1 + w as it is
  EXPECT_EQ(rounded_first, 1);
}

TEST(VariantsTest, TrailingAxesHaveAFirst) {
  v1::NormSpec spec;
  spec.mutable_rms_norm();
  EXPECT_EQ(FirstTrailingAxis(spec, 3), 2);
  spec.mutable_rms_norm()->add_axes(-1);
  spec.mutable_rms_norm()->add_axes(1);
  EXPECT_EQ(FirstTrailingAxis(spec, 3), 1);
  spec.mutable_rms_norm()->clear_axes();
  spec.mutable_rms_norm()->add_axes(1);
  EXPECT_EQ(FirstTrailingAxis(spec, 3), 3);
  spec.mutable_layer_norm()->add_normalized_shape(8);
  spec.mutable_layer_norm()->add_normalized_shape(2);
  EXPECT_EQ(FirstTrailingAxis(spec, 3), 1);
  spec.mutable_batch_norm();
  EXPECT_EQ(FirstTrailingAxis(spec, 3), 3);
}

TEST(VariantsTest, GroupsAreThoseThatDivideTheChannels) {
  Variant group;
  group.spec.mutable_group_norm()->set_num_groups(4);
  group.spec.mutable_group_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
  const std::vector<std::string> words = NeighboursOf(group, {.shape = {2, 12, 5}});
  for (const char* word : {"num_groups 1", "num_groups 2", "num_groups 12"}) EXPECT_TRUE(Holds(words, word)) << word;
  for (const char* word : {"num_groups 4", "num_groups 8"}) EXPECT_FALSE(Holds(words, word)) << word;
}

TEST(VariantsTest, WithoutAffineParametersThereIsNoOrderOfThem) {
  const std::vector<std::string> words = NeighboursOf(RmsVariant(), {.shape = {4, 8}});
  EXPECT_FALSE(Holds(words, "cast_then_affine"));
  EXPECT_FALSE(Holds(words, "weight_offset 1"));
}

TEST(VariantsTest, AMeanCanBeLeftOutAndAVarianceUnbiased) {
  Variant layer;
  layer.spec.mutable_layer_norm()->set_eps(1e-5);
  layer.spec.mutable_layer_norm()->set_eps_mode(v1::EPS_MODE_INSIDE_SQRT);
  layer.spec.mutable_layer_norm()->add_axes(-1);
  const VariantInput input = {.shape = {4, 8}, .has_residual = true};
  const std::vector<std::string> words = NeighboursOf(layer, input);
  EXPECT_TRUE(Holds(words, "rms_norm")) << testing::PrintToString(words);
  EXPECT_TRUE(Holds(words, "variance over n - 1"));
  EXPECT_TRUE(Holds(words, "keep_wide"));
  EXPECT_EQ(Differences(layer, layer), kAsGiven);
}

TEST(VariantsTest, InferenceOfBatchNormTakesNoVariance) {
  Variant batch;
  batch.spec.mutable_batch_norm()->set_eps(1e-5);
  batch.spec.mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
  const std::vector<std::string> words = NeighboursOf(batch, {.shape = {2, 3, 5}, .given_statistics = true});
  EXPECT_FALSE(Holds(words, "variance over n - 1"));
  EXPECT_TRUE(Holds(words, "channels_last"));
}

TEST(VariantsTest, AnUnbiasedVarianceIsAnotherEpsAndAFactor) {
  // Two elements -1, 1: M2 is 2, the unbiased variance 2, D = sqrt(2 + eps) and, added, sqrt(2) + eps.
  v1::NormSpec spec;
  spec.mutable_layer_norm()->set_eps(0.5);
  spec.mutable_layer_norm()->set_eps_mode(v1::EPS_MODE_INSIDE_SQRT);
  UnbiasedForm form = OfUnbiased(spec, 2);
  EXPECT_NEAR(form.factor / std::sqrt(1 + form.spec.layer_norm().eps()), 1 / std::sqrt(2.5), 1e-15);
  spec.mutable_layer_norm()->set_eps_mode(v1::EPS_MODE_ADD_TO_ROOT);
  form = OfUnbiased(spec, 2);
  EXPECT_NEAR(form.factor / (1 + form.spec.layer_norm().eps()), 1 / (std::sqrt(2.0) + 0.5), 1e-15);
}

TEST(FitsBetterTest, ErrorsOfTheDefinitionCountBeforeThoseOfRounding) {
  const Fit wrong = {.elements = 1000, .nearest = 10, .max_ulps = 900, .mean_ulps = 300};
  const Fit right = {.elements = 1000, .nearest = 400, .max_ulps = 2, .mean_ulps = 0.5};
  const Fit exact = {.elements = 1000, .nearest = 1000, .max_ulps = 0.5, .mean_ulps = 0.4};
  const Fit infinite = {.elements = 1000, .mismatches = 1, .nearest = 999, .max_ulps = 0.5, .mean_ulps = 0.25};
  EXPECT_TRUE(FitsBetter(right, wrong));
  EXPECT_FALSE(FitsBetter(wrong, right));
  EXPECT_TRUE(FitsBetter(exact, right));
  EXPECT_TRUE(FitsBetter(wrong, infinite));
  EXPECT_FALSE(FitsBetter(right, right));
}

TEST(FitsBetterTest, IsAnOrder) {
  // Each of these was better than the one before, and the first better than the last, when means within a factor
  // counted as equal: the search went round for ever.
  const Fit a = {.elements = 1000, .nearest = 0, .mean_ulps = 197};
  const Fit b = {.elements = 1000, .nearest = 20, .mean_ulps = 250};
  const Fit c = {.elements = 1000, .nearest = 40, .mean_ulps = 305};
  EXPECT_FALSE(FitsBetter(b, a) && FitsBetter(c, b) && FitsBetter(a, c));
}

// Finds `truth` with a judge whose error grows with each choice that is another.
std::vector<FoundVariant> Find(const Variant& truth, int* asked) {
  const auto judge = [&](const Variant& variant) -> absl::StatusOr<std::optional<Fit>> {
    ++*asked;
    const v1::RmsNorm& ours = truth.spec.rms_norm();
    const v1::RmsNorm& theirs = variant.spec.rms_norm();
    if (theirs.axes_size() > 0) return std::nullopt;
    const int wrong = (ours.eps() != theirs.eps()) + (ours.eps_mode() != theirs.eps_mode()) +
                      (ours.weight_offset() != theirs.weight_offset()) + 4 * variant.spec.has_layer_norm();
    const bool cast = ours.cast_order() == theirs.cast_order();
    return Fit{.elements = 100, .nearest = cast ? 100 : 50, .max_ulps = 1, .mean_ulps = 0.3 * std::pow(10, wrong)};
  };
  const Variant given = RmsVariant();
  const FoundVariant first = {given, **judge(given)};
  const auto found = FindVariant(first, {.shape = {4, 8}, .has_weight = true}, judge);
  EXPECT_TRUE(found.ok());
  return *found;
}

TEST(FindVariantTest, ChangesSeveralChoicesOneAfterTheOther) {
  Variant truth = RmsVariant();
  truth.spec.mutable_rms_norm()->set_eps(1e-6);
  truth.spec.mutable_rms_norm()->set_eps_mode(v1::EPS_MODE_ADD_TO_ROOT);
  truth.spec.mutable_rms_norm()->set_weight_offset(1);
  truth.spec.mutable_rms_norm()->set_cast_order(v1::CAST_ORDER_CAST_THEN_AFFINE);
  int asked = 0;
  const std::vector<FoundVariant> found = Find(truth, &asked);
  EXPECT_EQ(Differences(found[0].variant, RmsVariant()), "eps 1e-06, add_to_root, cast_then_affine, weight_offset 1");
  EXPECT_LE(asked, kMostVariants + 1);
  for (size_t i = 2; i < found.size(); ++i) EXPECT_LE(found[i - 1].fit.mean_ulps, found[i].fit.mean_ulps);
}

TEST(FindVariantTest, StaysWithTheGivenOneWhereNothingIsBetter) {
  int asked = 0;
  EXPECT_EQ(Differences(Find(RmsVariant(), &asked)[0].variant, RmsVariant()), kAsGiven);
}

TEST(FindVariantTest, AnErrorOfTheServerEndsTheSearch) {
  const auto judge = [](const Variant&) -> absl::StatusOr<std::optional<Fit>> {
    return absl::UnavailableError("gone");
  };
  const auto found = FindVariant({RmsVariant(), {}}, {.shape = {4, 8}}, judge);
  EXPECT_EQ(found.status().message(), "gone");
}

}  // namespace
}  // namespace normd::client

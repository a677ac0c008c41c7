// (c) Sends every method on one tensor of shape [2, 3, 4] as one batch request, and checks the promise of each method:
// means of 0, mean squares or norms of 1 over its statistics group, and the same bytes as a single call.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/table.h"
#include "client/normctl/demo.h"

namespace normd::client {
namespace {

// With eps 0 the promises are exact up to the rounding to f32.
constexpr double kTolerance = 1e-6;
constexpr int64_t kBatch = 2, kLength = 3, kChannels = 4;
constexpr size_t kElements = kBatch * kLength * kChannels;

constexpr double kInput[kElements] = {1,  2,  3,  4,  2,   4,    6, 8,    0.5, -1, 1.5, 2,
                                      10, 20, 30, 40, 5.5, 5.25, 5, 4.75, -1,  0,  1,   3};

// The property that a method promises for each of its statistics groups, and the groups themselves.
enum class Promise { kMeanSquare, kNormOne, kAbsoluteSum, kNone };
struct Case {
  const char* title;
  const char* group;  // the axes that the statistics go over
  v1::NormSpec spec;
  bool centered;
  Promise promise;
  int (*group_of)(int n, int l, int c);  // the index of an element's statistics group
};

int PerChannel(int, int, int c) { return c; }
int PerToken(int n, int l, int) { return n * kLength + l; }
int PerInstance(int n, int, int c) { return n * kChannels + c; }
int PerGroup(int n, int, int c) { return n * 2 + c / 2; }

std::vector<Case> Cases() {
  std::vector<Case> out;
  const auto add = [&](const char* title, const char* group, bool centered, Promise promise,
                       int (*group_of)(int, int, int)) -> v1::NormSpec& {
    out.push_back({title, group, {}, centered, promise, group_of});
    return out.back().spec;
  };
  const auto last = [](auto* method) {
    method->set_layout(v1::LAYOUT_CHANNELS_LAST);
    method->set_eps(0);
    return method;
  };
  last(add("BatchNorm", "B, L", true, Promise::kMeanSquare, &PerChannel).mutable_batch_norm());
  v1::LayerNorm& layer = *add("LayerNorm", "D", true, Promise::kMeanSquare, &PerToken).mutable_layer_norm();
  layer.set_eps(0);
  layer.add_normalized_shape(kChannels);
  last(add("InstanceNorm", "L", true, Promise::kMeanSquare, &PerInstance).mutable_instance_norm());
  last(add("GroupNorm(2)", "L, D/2", true, Promise::kMeanSquare, &PerGroup).mutable_group_norm())->set_num_groups(2);
  add("RMSNorm", "D", false, Promise::kMeanSquare, &PerToken).mutable_rms_norm()->set_eps(0);
  v1::PRmsNorm& partial =
      *add("pRMSNorm(0.5)", "first half of D", false, Promise::kNone, &PerToken).mutable_p_rms_norm();
  partial.set_eps(0);
  partial.set_p(0.5);
  add("ScaleNorm", "D", false, Promise::kNormOne, &PerToken).mutable_scale_norm()->set_eps(0);
  add("LpNorm(1)", "D", false, Promise::kAbsoluteSum, &PerToken).mutable_lp_norm()->set_order(1);
  add("LpNorm(2)", "D", false, Promise::kNormOne, &PerToken).mutable_lp_norm()->set_order(2);
  add("PowerNorm", "B, L", false, Promise::kMeanSquare, &PerChannel).mutable_power_norm()->set_eps(0);
  return out;
}

v1::NormalizeRequest RequestOf(const Case& one) {
  v1::NormalizeRequest request;
  *request.mutable_spec() = one.spec;
  request.set_mode(v1::MODE_TRAINING);
  *request.mutable_x() = Tensor::Rounded(v1::DTYPE_F32, {kBatch, kLength, kChannels}, kInput).ToProto();
  return request;
}

// The largest deviation in any statistics group: of the mean from 0, and of the promised size from 1.
double Violation(const Case& one, const std::vector<double>& y) {
  constexpr int kGroups = kElements;
  double sum[kGroups] = {}, squares[kGroups] = {}, absolute[kGroups] = {};
  int count[kGroups] = {};
  for (int i = 0; i < static_cast<int>(kElements); ++i) {
    const int group = one.group_of(i / (kLength * kChannels), i / kChannels % kLength, i % kChannels);
    const double value = y[static_cast<size_t>(i)];
    sum[group] += value;
    squares[group] += value * value;
    absolute[group] += std::fabs(value);
    ++count[group];
  }
  double worst = 0;
  for (int group = 0; group < kGroups; ++group) {
    if (count[group] == 0) continue;
    if (one.centered) worst = std::max(worst, std::fabs(sum[group] / count[group]));
    if (one.promise == Promise::kMeanSquare) worst = std::max(worst, std::fabs(squares[group] / count[group] - 1));
    if (one.promise == Promise::kNormOne) worst = std::max(worst, std::fabs(std::sqrt(squares[group]) - 1));
    if (one.promise == Promise::kAbsoluteSum) worst = std::max(worst, std::fabs(absolute[group] - 1));
  }
  return worst;
}

// The deviation from the promise of pRMSNorm: the mean square of the first half of each token is 1.
double PartialViolation(const std::vector<double>& y) {
  double worst = 0;
  for (size_t token = 0; token < kElements; token += kChannels) {
    const double mean_square = (y[token] * y[token] + y[token + 1] * y[token + 1]) / 2;
    worst = std::max(worst, std::fabs(mean_square - 1));
  }
  return worst;
}

absl::Status ShowOne(Demo& demo, const Case& one, v1::BatchItemResult item, Table& table) {
  if (absl::Status status = ToStatus(item.status()); !status.ok()) return status;
  const absl::StatusOr<Tensor> y = TakeOutput(*item.mutable_response(), v1::OUTPUT_KIND_Y);
  if (!y.ok()) return y.status();
  absl::StatusOr<v1::NormalizeResponse> alone = demo.client.Normalize(RequestOf(one));
  if (!alone.ok()) return alone.status();
  const absl::StatusOr<Tensor> same = TakeOutput(*alone, v1::OUTPUT_KIND_Y);
  if (!same.ok()) return same.status();
  const bool equal =
      demo.Check(y->data == same->data, absl::StrCat(one.title, ": batched bytes equal those of one call"));
  const std::vector<double> values = y->ToDoubles();
  const double violation = one.promise == Promise::kNone ? PartialViolation(values) : Violation(one, values);
  const bool holds =
      demo.Check(violation <= kTolerance, absl::StrCat(one.title, ": mean and size of its statistics groups"));
  const char* promise = one.promise == Promise::kNormOne       ? "norm 1"
                        : one.promise == Promise::kAbsoluteSum ? "sum |y| 1"
                        : one.centered                         ? "mean 0, variance 1"
                                                               : "mean square 1";
  std::vector<std::string> cells = {one.title, one.group};
  for (size_t i = 0; i < kChannels; ++i) cells.push_back(absl::StrFormat("%.4f", values[i]));
  cells.push_back(absl::StrFormat("%s: %s (%.0e)", promise, holds ? "yes" : "NO", violation));
  cells.push_back(equal ? "yes" : "NO");
  table.AddRow(std::move(cells));
  demo.json["methods"].push_back({{"method", item.response().applied().method()},
                                  {"title", one.title},
                                  {"y", values},
                                  {"violation", violation},
                                  {"batch_equals_single", equal}});
  return absl::OkStatus();
}

}  // namespace

absl::Status RunSideBySide(Demo& demo) {
  const std::vector<Case> cases = Cases();
  v1::BatchNormalizeRequest request;
  for (const Case& one : cases) *request.add_items() = RequestOf(one);
  absl::StatusOr<v1::BatchNormalizeResponse> response = demo.client.BatchNormalize(request);
  if (!response.ok()) return response.status();
  if (response->items_size() != request.items_size()) return absl::InternalError("the batch reply misses items");
  Table table({{"method"},
               {"statistics over"},
               {"y[0,0,0]", Align::kRight},
               {"y[0,0,1]", Align::kRight},
               {"y[0,0,2]", Align::kRight},
               {"y[0,0,3]", Align::kRight},
               {"holds over its groups"},
               {"batch = single"}});
  for (size_t i = 0; i < cases.size(); ++i) {
    const absl::Status status = ShowOne(demo, cases[i], response->items(static_cast<int>(i)), table);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(cases[i].title, ": ", status.message()));
  }
  absl::StrAppend(&demo.text, "x is [B, L, D] = [2, 3, 4], x[0,0] = 1 2 3 4, eps 0, training mode.\n\n",
                  table.Render(demo.width));
  return absl::OkStatus();
}

}  // namespace normd::client

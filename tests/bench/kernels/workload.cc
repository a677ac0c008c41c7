#include "tests/bench/kernels/workload.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "kernels/base/strings.h"

namespace normd::bench {

namespace {

Workload Rows(Op op, int64_t rows, int64_t d) { return {.op = op, .outer = rows, .row = d}; }
Workload Images(Op op, Layout layout, int64_t n, int64_t channels, int64_t side) {
  return {.op = op, .layout = layout, .outer = n, .channels = channels, .side = side};
}

struct Channels {
  int64_t channels, side;
};

// As models have them: transformers, ResNet-50, Stable Diffusion, style transfer.
std::vector<Workload> Listed() {
  std::vector<Workload> list;
  const std::vector<std::pair<int64_t, int64_t>> layer = {{16, 768},    {256, 768},   {257, 768},  {32768, 768},
                                                          {4096, 1024}, {1024, 1024}, {256, 4096}, {1024, 12288},
                                                          {256, 769},   {256, 1128},  {64, 65536}};
  for (const auto& [rows, d] : layer) list.push_back(Rows(Op::kLayer, rows, d));
  const std::vector<std::pair<int64_t, int64_t>> rms = {{1, 4096},    {256, 4096},   {16384, 4096},
                                                        {8192, 8192}, {131072, 128}, {2048, 7168}};
  for (const auto& [rows, d] : rms) list.push_back(Rows(Op::kRms, rows, d));
  constexpr Channels kResNet[] = {{64, 112}, {256, 56}, {512, 28}, {1024, 14}, {2048, 7}};
  constexpr Channels kDiffusion[] = {{320, 64}, {640, 32}, {1280, 16}, {2560, 8}};
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    for (const Op op : {Op::kBatchTraining, Op::kBatchInference}) {
      for (const Channels& c : kResNet) list.push_back(Images(op, layout, 8, c.channels, c.side));
    }
    for (const Channels& c : kDiffusion) list.push_back(Images(Op::kGroup, layout, 2, c.channels, c.side));
  }
  list.push_back(Images(Op::kInstance, Layout::kChannelsFirst, 8, 64, 256));
  return list;
}

Regime RegimeOf(int64_t bytes) {
  if (bytes <= kMaxL2Bytes) return Regime::kL2;
  if (bytes >= kMinL3Bytes && bytes <= kMaxL3Bytes) return Regime::kL3;
  return bytes >= DramBytes() ? Regime::kDram : Regime::kBetween;
}

// `listed` with as many rows or images as `regime` takes; kBetween: one of them is too much.
Workload Scaled(Workload listed, Regime regime) {
  const int64_t one = 2 * listed.OuterElements() * SizeOf(listed.dtype);
  const int64_t as_listed = listed.outer;
  if (RegimeOf(listed.Bytes()) != regime) {
    // In the middle of L3's range; as much as L2 takes.
    const int64_t most = regime == Regime::kL2 ? kMaxL2Bytes : 16 << 20;
    listed.outer = regime == Regime::kDram ? (DramBytes() + one - 1) / one : std::max<int64_t>(1, most / one);
  }
  // One image is no batch: nobody trains on it, and its 49 positions would measure what is done once a channel.
  const bool fits = RegimeOf(listed.Bytes()) == regime && (listed.IsRows() || listed.outer > 1 || as_listed == 1);
  listed.regime = fits ? regime : Regime::kBetween;
  return listed;
}

NormSpec SpecOf(const Workload& workload) {
  switch (workload.op) {
    case Op::kLayer:
      return {.attributes = LayerNormSpec{.normalized_shape = {workload.row}}};
    case Op::kRms:
      return {.attributes = RmsNormSpec()};
    case Op::kPRms:
      return {.attributes = PRmsNormSpec{.p = kPartial}};
    case Op::kScale:
      return {.attributes = ScaleNormSpec()};
    case Op::kBatchTraining:
    case Op::kBatchInference:
      return {.attributes = BatchNormSpec{.layout = workload.layout}};
    case Op::kGroup:
      return {.attributes = GroupNormSpec{.layout = workload.layout, .num_groups = kGroups}};
    case Op::kInstance:
      return {.attributes = InstanceNormSpec{.layout = workload.layout}};
  }
  return {};
}

}  // namespace

std::string_view RegimeName(Regime regime) {
  constexpr std::string_view kNames[] = {"L2", "L3", "DRAM", "between"};
  return kNames[static_cast<size_t>(regime)];
}

std::string_view OpName(Op op) {
  constexpr std::string_view kNames[] = {"LN", "RMS", "pRMS", "Scale", "BN-train", "BN-infer", "GN", "IN"};
  return kNames[static_cast<size_t>(op)];
}

std::string_view FillName(Fill fill) {
  constexpr std::string_view kNames[] = {"normal", "constant", "zeros", "steps", "signs"};
  return kNames[static_cast<size_t>(fill)];
}

std::vector<int64_t> Workload::ShapeOf() const {
  if (IsRows()) return {outer, row};
  if (layout == Layout::kChannelsFirst) return {outer, channels, side, side};
  return {outer, side, side, channels};
}

std::string Workload::Kind() const {
  if (IsRows()) return Concat(OpName(op), " ", row);
  return Concat(OpName(op), layout == Layout::kChannelsFirst ? " nchw " : " nhwc ", channels, "@", side);
}

std::string Workload::Name() const {
  const std::string start = Concat(OpName(op), " ", normd::Name(dtype), " ");
  if (IsRows()) return Concat(start, outer, "x", row);
  return Concat(start, layout == Layout::kChannelsFirst ? "nchw " : "nhwc ", outer, "x", channels, "@", side);
}

std::string Workload::FullName() const { return Concat(RegimeName(regime), " ", Name()); }

NormSpec Workload::Spec() const {
  NormSpec spec = SpecOf(*this);
  spec.eps = eps;
  return spec;
}

PlanOptions Workload::Options(Precision precision) const {
  PlanOptions options;
  options.precision = precision;
  if (op == Op::kBatchTraining) options.mode = Mode::kTraining;
  options.given_statistics = op == Op::kBatchInference;
  return options;
}

int64_t DramBytes() {
  constexpr int64_t kMost = 128 << 20;
  constexpr int64_t kUnknown = 32 << 20;  // a hypervisor may hide it
  const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return 4 * std::min(cache > 0 ? cache : kUnknown, kMost);
}

std::vector<Workload> Workloads(const Flags& flags) {
  std::set<std::string> names, kinds;
  std::vector<Workload> workloads;
  for (const Regime regime : {Regime::kL2, Regime::kL3, Regime::kDram}) {
    if (flags.smoke && regime != Regime::kL2) break;
    for (const Workload& listed : Listed()) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        Workload workload = listed;
        workload.dtype = dtype;
        workload = Scaled(workload, regime);
        if (flags.quick && !workload.IsRows() && dtype == DType::kF16) continue;
        if (flags.quick && regime == Regime::kDram) {
          const std::string kind = Concat(workload.Kind().substr(0, workload.Kind().rfind(' ')), Name(dtype));
          const bool shown = dtype == DType::kF32 || (dtype == DType::kBF16 && workload.IsRows());
          if (!shown || !kinds.insert(kind).second) continue;
        }
        const std::string name = workload.FullName();
        if (flags.Chosen(name) && names.insert(name).second) workloads.push_back(workload);
      }
    }
  }
  return workloads;
}

}  // namespace normd::bench

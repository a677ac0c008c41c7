#include "tests/bench/kernels/workload.h"

#include <unistd.h>

#include <algorithm>
#include <regex>
#include <set>

namespace normd::bench {

namespace {

std::string_view OpName(Op op) {
  switch (op) {
    case Op::kLayer:
      return "LN";
    case Op::kRms:
      return "RMS";
    case Op::kPRms:
      return "pRMS";
    case Op::kScale:
      return "Scale";
    case Op::kBatchTraining:
      return "BN-train";
    case Op::kBatchInference:
      return "BN-infer";
    case Op::kGroup:
      return "GN";
    case Op::kInstance:
      return "IN";
  }
  return "";
}

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

}  // namespace

std::string_view RegimeName(Regime regime) {
  switch (regime) {
    case Regime::kL2:
      return "L2";
    case Regime::kL3:
      return "L3";
    case Regime::kDram:
      return "DRAM";
    case Regime::kBetween:
      return "between";
  }
  return "";
}

std::vector<int64_t> Workload::ShapeOf() const {
  if (IsRows()) return {outer, row};
  if (layout == Layout::kChannelsFirst) return {outer, channels, side, side};
  return {outer, side, side, channels};
}

std::string Workload::Kind() const {
  const std::string op_name(OpName(op));
  if (IsRows()) return op_name + " " + std::to_string(row);
  return op_name + (layout == Layout::kChannelsFirst ? " nchw " : " nhwc ") + std::to_string(channels) + "@" +
         std::to_string(side);
}

std::string Workload::Name() const {
  std::string name = std::string(OpName(op)) + " " + std::string(normd::Name(dtype)) + " ";
  if (IsRows()) return name + std::to_string(outer) + "x" + std::to_string(row);
  name += layout == Layout::kChannelsFirst ? "nchw " : "nhwc ";
  return name + std::to_string(outer) + "x" + std::to_string(channels) + "@" + std::to_string(side);
}

NormSpec Workload::Spec() const {
  switch (op) {
    case Op::kLayer:
      return {.attributes = LayerNormSpec{.normalized_shape = {row}}};
    case Op::kRms:
      return {.attributes = RmsNormSpec()};
    case Op::kPRms:
      return {.attributes = PRmsNormSpec{.p = kPartial}};
    case Op::kScale:
      return {.attributes = ScaleNormSpec()};
    case Op::kBatchTraining:
    case Op::kBatchInference:
      return {.attributes = BatchNormSpec{.layout = layout}};
    case Op::kGroup:
      return {.attributes = GroupNormSpec{.layout = layout, .num_groups = kGroups}};
    case Op::kInstance:
      return {.attributes = InstanceNormSpec{.layout = layout}};
  }
  return {};
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

std::vector<Workload> Workloads(const WorkloadOptions& options) {
  const std::regex only(options.only);
  std::set<std::string> names, kinds;
  std::vector<Workload> workloads;
  for (const Regime regime : {Regime::kL2, Regime::kL3, Regime::kDram}) {
    kinds.clear();
    for (const Workload& listed : Listed()) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        Workload workload = listed;
        workload.dtype = dtype;
        workload = Scaled(workload, regime);
        if (options.quick && !workload.IsRows() && dtype == DType::kF16) continue;
        if (options.quick && regime == Regime::kDram) {
          const std::string kind = workload.Kind().substr(0, workload.Kind().rfind(' ')) + std::string(Name(dtype));
          const bool shown = dtype == DType::kF32 || (dtype == DType::kBF16 && workload.IsRows());
          if (!shown || !kinds.insert(kind).second) continue;
        }
        const std::string name = std::string(RegimeName(workload.regime)) + " " + workload.Name();
        if (names.insert(name).second && std::regex_search(name, only)) workloads.push_back(workload);
      }
    }
  }
  return workloads;
}

}  // namespace normd::bench

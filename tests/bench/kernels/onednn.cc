// oneDNN 2.6, Debian's, has LayerNorm and BatchNorm in f32 and bf16: on rows, nchw and nhwc as they are, with
// parameters in f32. oneDNN 3 has GroupNorm, RMSNorm and f16 besides, where the processor does.
#include <dlfcn.h>

#include <unordered_map>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "tests/bench/kernels/candidate.h"

namespace normd::bench {

namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

// The library runs on OpenMP, whose runtime comes with it.
void SetOpenMpThreads(int threads) {
  using Set = void (*)(int);
  const auto set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(threads);
}

// The description of a forward primitive. oneDNN 2 makes it of another description, oneDNN 3 of the values themselves,
// and of the result's memory besides.
template <typename Forward, typename... More>
typename Forward::primitive_desc Describe(const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
                                          dnnl::prop_kind kind, const dnnl::memory::desc& data, More... more) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, kind, data, data, more..., attributes};
#else
  return {typename Forward::desc(kind, data, more...), attributes, engine};
#endif
}

const auto kScaleAndShift = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
constexpr float kEps = 1e-5F;

class OneDnn final : public Candidate {
 public:
  std::string_view name() const override { return "oneDNN"; }
  bool Spins() const override { return true; }
  bool WritesResult() const override { return true; }

  bool Prepare(const Workload& workload, const Buffers& buffers, int threads) override {
    if (workload.dtype == DType::kF16 && DNNL_VERSION_MAJOR < 3) return false;
    SetOpenMpThreads(threads);
    try {
      switch (workload.op) {
        case Op::kLayer:
          return LayerNorm(workload, kScaleAndShift, buffers), true;
#if DNNL_VERSION_MAJOR > 3 || (DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR >= 10)
        case Op::kRms:
          return LayerNorm(workload, dnnl::normalization_flags::use_scale | dnnl::normalization_flags::rms_norm,
                           buffers),
                 true;
#endif
#if DNNL_VERSION_MAJOR >= 3
        case Op::kGroup:
          return GroupNorm(workload, buffers), true;
#endif
        case Op::kBatchTraining:
        case Op::kBatchInference:
          return BatchNorm(workload, buffers), true;
        default:
          return false;
      }
    } catch (const dnnl::error&) {  // this machine has no primitive for it
      return false;
    }
  }

 private:
  void Call() override {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

  dnnl::memory::desc Data(const Workload& workload) const {
    const std::vector<int64_t> shape =
        workload.IsRows() ? workload.ShapeOf()
                          : std::vector<int64_t>{workload.outer, workload.channels, workload.side, workload.side};
    const Tag tag = workload.IsRows() ? Tag::ab : workload.layout == Layout::kChannelsFirst ? Tag::nchw : Tag::nhwc;
    const Type type = workload.dtype == DType::kF32   ? Type::f32
                      : workload.dtype == DType::kF16 ? Type::f16
                                                      : Type::bf16;
    return {shape, type, tag};
  }

  // The scratchpad is ours: allocated once.
  dnnl::primitive_attr Attributes() const {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
  }

  void LayerNorm(const Workload& workload, dnnl::normalization_flags flags, const Buffers& buffers) {
    using Forward = dnnl::layer_normalization_forward;
    const auto primitive =
        Describe<Forward>(engine_, Attributes(), dnnl::prop_kind::forward_inference, Data(workload), kEps, flags);
    Bind(primitive, workload.row, buffers);
    primitive_ = Forward(primitive);
  }

#if DNNL_VERSION_MAJOR >= 3
  void GroupNorm(const Workload& workload, const Buffers& buffers) {
    using Forward = dnnl::group_normalization_forward;
    const auto primitive = Describe<Forward>(engine_, Attributes(), dnnl::prop_kind::forward_inference, Data(workload),
                                             kGroups, kEps, kScaleAndShift);
    Bind(primitive, workload.channels, buffers);
    primitive_ = Forward(primitive);
  }
#endif

  void BatchNorm(const Workload& workload, const Buffers& buffers) {
    using Forward = dnnl::batch_normalization_forward;
    const bool training = workload.op == Op::kBatchTraining;
    auto flags = kScaleAndShift;
    if (!training) flags |= dnnl::normalization_flags::use_global_stats;
    const auto primitive = Describe<Forward>(
        engine_, Attributes(), training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
        Data(workload), kEps, flags);
    Bind(primitive, workload.channels, buffers);
    // Of its own: what it computes must not change what others are given.
    if (training) statistics_.assign(static_cast<size_t>(2 * workload.channels), 0);
    float* const mean = training ? statistics_.data() : buffers.parameters(2);
    float* const variance = training ? statistics_.data() + workload.channels : buffers.parameters(3);
    arguments_[DNNL_ARG_MEAN] = dnnl::memory(primitive.mean_desc(), engine_, mean);
    arguments_[DNNL_ARG_VARIANCE] = dnnl::memory(primitive.variance_desc(), engine_, variance);
    primitive_ = Forward(primitive);
  }

  template <typename PrimitiveDesc>
  void Bind(const PrimitiveDesc& primitive, int64_t parameters, const Buffers& buffers) {
    const dnnl::memory::desc vector({parameters}, Type::f32, Tag::a);
    arguments_.clear();
    arguments_.emplace(DNNL_ARG_SRC, dnnl::memory(primitive.src_desc(), engine_, buffers.x()));
    arguments_.emplace(DNNL_ARG_DST, dnnl::memory(primitive.dst_desc(), engine_, buffers.y()));
    arguments_.emplace(DNNL_ARG_SCALE, dnnl::memory(vector, engine_, buffers.parameters(0)));
    arguments_.emplace(DNNL_ARG_SHIFT, dnnl::memory(vector, engine_, buffers.parameters(1)));
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(primitive.scratchpad_desc(), engine_));
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::vector<float> statistics_;
};

}  // namespace

std::unique_ptr<Candidate> MakeOneDnn() { return std::make_unique<OneDnn>(); }

std::string OneDnnText() {
  const dnnl_version_t* const version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + ", scratchpad kept, parameters f32";
}

}  // namespace normd::bench

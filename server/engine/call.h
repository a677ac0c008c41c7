// One normalisation as domain values: what rpc decodes into and encodes from. No gRPC, no protobuf.
// Ownership: a Call's views borrow from `owner`, which the engine keeps until Done has returned.
#ifndef NORMD_SERVER_ENGINE_CALL_H_
#define NORMD_SERVER_ENGINE_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "kernels/base/types.h"
#include "kernels/moments.h"
#include "kernels/parameters.h"
#include "kernels/plan.h"
#include "kernels/tensor.h"
#include "server/base/buffer.h"
#include "server/schedule/work.h"
#include "server/session/session_store.h"

namespace normd {

enum class OutputKind : uint8_t { kY = 1, kH = 2, kMean = 3, kInverseStd = 4, kMoments = 5 };  // the wire's numbers

struct SessionTarget {
  std::string id;  // without "sessions/"
};

// Memory of the caller's that an output is written to. The view borrows from Call::owner.
struct SharedBytes {
  std::byte* data = nullptr;
  int64_t size_bytes = 0;
  std::string region;  // how the caller names it
  uint64_t offset = 0;
  MemorySpace space = {};  // where `data` lies; the host's but for Y and H
};

struct WantedOutput {
  // NOLINTNEXTLINE(google-explicit-constructor): {OutputKind::kY, OutputKind::kMean} is a list of wanted outputs.
  WantedOutput(OutputKind wanted) : kind(wanted) {}

  OutputKind kind;
  std::optional<SharedBytes> shared;  // absent: sent back
};

struct PreparedCall;

struct Call {
  // What was planned for a call like this before, null where nothing was. All but the bytes of the tensors, `step`,
  // `owner` and what says who asks must be as they were in the call that it came from, and no output may be shared and
  // no tensor lie in CUDA memory; a spec target may be left empty.
  std::shared_ptr<const PreparedCall> prepared;

  std::variant<NormSpec, SessionTarget> target;
  Mode mode = Mode::kInference;
  TensorView x;
  ParameterViews parameters;             // spec targets only
  TensorView running_mean, running_var;  // BatchNorm inference by spec: any dtype, one per channel
  TensorView residual;
  double residual_scale = 1;
  ResidualRounding residual_rounding = ResidualRounding::kRoundFirst;
  TensorView mask;                    // dtype ignored, one byte an element
  std::vector<WantedOutput> outputs;  // empty: y
  Precision precision = Precision::kExact;
  Device device = Device::kAuto;
  std::optional<StepId> step;
  std::optional<uint64_t> expected_version;
  bool validate_only = false;
  absl::Duration max_staleness;                  // inference on a session: how old the version read may be
  bool moments_only = false;                     // ComputeMoments: Reduce alone, no state touched
  std::function<bool()> cancelled;               // null: never; see StateUpdate
  absl::Time deadline = absl::InfiniteFuture();  // by SteadyNow
  uint64_t caller = 0;  // whose call it is: of one caller the same number, and one of its own as far as it is known
  // Asked before `bytes` are allocated for what the call makes: outputs, moments, a scattered x put together. Null:
  // always.
  std::function<absl::Status(int64_t bytes)> reserve;
  // Asked before a step is committed, and at the end of every other call: whether what was read was what the caller
  // sent. Null: always.
  std::function<absl::Status()> validate_inputs;
  std::shared_ptr<const void> owner;
};

struct Applied {
  Method method = Method::kLayerNorm;
  double eps = 0;
  EpsMode eps_mode = EpsMode::kInsideSqrt;
  CastOrder cast_order = CastOrder::kAffineThenCast;
  Mode mode = Mode::kInference;
  Precision precision = Precision::kExact;
  Device device = Device::kCpu;
  bool device_fallback = false;  // another one was chosen, and lost or full
  std::string kernel;
  int64_t k = 0;
  uint64_t session_version = 0;
  Layout layout = Layout::kUnspecified;
  std::optional<RunningSpec> running;  // set where the method has running statistics
  std::optional<ResidualRounding> residual_rounding;
  double weight_offset = 0;
  std::optional<KRounding> k_rounding;
};

struct OutputTensor {
  OutputKind kind = OutputKind::kY;
  DType dtype = DType::kF32;
  Shape shape;
  Buffer bytes;                       // empty where it is shared
  std::optional<SharedBytes> shared;  // where it was written

  MemorySpace space() const { return shared.has_value() ? shared->space : MemorySpace(); }
  void* data() { return shared.has_value() ? shared->data : bytes.data(); }
};

struct StateReply {
  CommitResult result;
  bool output_available = true;
};

// Of the calls that travelled with this one, as its own are not known: those of a batch are one list of jobs, and the
// same time is in the reply of each. Adding them up counts it several times.
struct CallTimings {
  absl::Duration compute;
  absl::Duration commit;
};

struct CallReply {
  Applied applied;
  std::optional<StateReply> state;    // session targets
  std::vector<OutputTensor> outputs;  // in the order asked for; kMoments travels in `moments`
  std::optional<Moments> moments;
  Shape moments_shape;
  int64_t rows = 0;  // statistics groups computed, for metrics
  CallTimings timings;
  std::shared_ptr<const PreparedCall> prepared;  // for calls like this one; null where its memory was checked, too
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_CALL_H_

// One normalisation as domain values: the codec decodes a request into a Call and encodes a reply from a CallReply. No
// gRPC, no protobuf.
// In the path: made by the codec, run by Engine::Submit.
// Ownership: the views of a Call borrow from its `owner`, which the engine keeps until Done has returned.
// Threads: plain values; a Call belongs to one stage at a time.
#ifndef NORMD_SERVER_ENGINE_CALL_H_
#define NORMD_SERVER_ENGINE_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/types.h"
#include "kernels/exact_sums/group_sums.h"
#include "kernels/moments.h"
#include "kernels/outputs.h"
#include "kernels/parameters.h"
#include "kernels/plan.h"
#include "kernels/tensor.h"
#include "server/base/buffer.h"
#include "server/schedule/work.h"
#include "server/session/session_store.h"

namespace normd {

struct SessionTarget {
  std::string id;  // the session's key (server/session/session_key.h)
};

// A range of the caller's memory that an output is written to. `data` borrows from Call::owner.
struct SharedBytes {
  std::byte* data = nullptr;
  int64_t size_bytes = 0;
  std::string region;  // the region's name in the request
  uint64_t offset = 0;
  MemorySpace space = {};  // where `data` lies; see OutputInfo::may_be_on_device
};

struct WantedOutput {
  // NOLINTNEXTLINE(google-explicit-constructor): {OutputKind::kY, OutputKind::kMean} is a list of wanted outputs.
  WantedOutput(OutputKind wanted) : kind(wanted) {}

  OutputKind kind;
  std::optional<SharedBytes> shared;  // absent: the output is sent in the reply
};

struct PreparedCall;

struct Call {
  // The plan of an earlier call that equals this one; null if there is none. REQUIRES: this call equals the earlier one
  // in everything but the bytes of its tensors, `step`, `owner` and the fields that say who asks (cancelled, deadline,
  // caller, reserve, validate_inputs, events_completed); no output is shared and no tensor lies in CUDA memory. A spec
  // target may be left empty.
  std::shared_ptr<const PreparedCall> prepared;

  std::variant<NormSpec, SessionTarget> target;
  Mode mode = Mode::kInference;
  TensorView x;
  ParameterViews parameters;  // spec targets only
  // Statistics given to inference by spec: any dtype, one value per channel. PowerNorm gives its phi as running_var.
  TensorView running_mean, running_var;
  TensorView residual;
  double residual_scale = 1;
  ResidualRounding residual_rounding = ResidualRounding::kRoundFirst;
  TensorView mask;                    // one byte per position of x, channels left out; dtype ignored
  std::vector<WantedOutput> outputs;  // empty: y
  Precision precision = Precision::kExact;
  Device device = Device::kAuto;
  std::optional<StepId> step;
  std::optional<uint64_t> expected_version;
  bool validate_only = false;
  absl::Duration max_staleness;                  // inference on a session: maximum age of the version read
  bool moments_only = false;                     // ComputeMoments: the reduce pass alone, which changes no state
  bool want_exact = false;                       // ComputeMoments: exact sums with the moments
  std::function<bool()> cancelled;               // null: never; see StateUpdate
  absl::Time deadline = absl::InfiniteFuture();  // by SteadyNow
  uint64_t caller = 0;  // fair-queueing key: equal for calls of one connection; other connections almost always differ
  // Reserves `bytes` before they are allocated for outputs, moments, parameters or a copy of x; an error fails the
  // call. Null: every reservation succeeds.
  std::function<absl::Status(int64_t bytes)> reserve;
  // Fails if an input in shared memory was truncated during the call. Called before a step is committed, and before the
  // reply of every call that applied no step. Null: never fails.
  std::function<absl::Status()> validate_inputs;
  // Whether the events after which the tensors may be read and written have completed; the engine asks until it is
  // true, and only then starts the call. An error fails the call. Null: the call waits for no event. Must not block.
  std::function<absl::StatusOr<bool>()> events_completed;
  std::shared_ptr<const void> owner;
};

// How a call was executed, as its reply reports it.
struct Applied {
  Method method = Method::kLayerNorm;
  double eps = 0;
  EpsMode eps_mode = EpsMode::kInsideSqrt;
  CastOrder cast_order = CastOrder::kAffineThenCast;
  Mode mode = Mode::kInference;
  Precision precision = Precision::kExact;
  bool is_nearest = true;  // every output is the value of its type that is nearest to the formula's
  Device device = Device::kCpu;
  bool device_fallback = false;  // AUTO chose a device that was lost or full
  std::string kernel;
  int64_t k = 0;
  uint64_t session_version = 0;
  Layout layout = Layout::kUnspecified;
  std::optional<RunningSpec> running;  // set if the method has a running mean and variance
  std::optional<ResidualRounding> residual_rounding;
  double weight_offset = 0;
  std::optional<KRounding> k_rounding;
};

struct OutputTensor {
  OutputKind kind = OutputKind::kY;
  DType dtype = DType::kF32;
  Shape shape;
  Buffer bytes;                       // empty if the output is shared
  std::optional<SharedBytes> shared;  // the range that was written

  MemorySpace space() const { return shared.has_value() ? shared->space : MemorySpace(); }
  void* data() { return shared.has_value() ? shared->data : bytes.data(); }
};

struct StateReply {
  CommitResult result;
  bool output_available = true;  // false: a replay whose statistics are no longer known
};

// Times of a call. `compute` is the time of all calls of its batch, which run as one job list: each reply carries the
// same time, and adding the replies up counts it several times. `commit` lasts until this call's step is durable.
// `queue` is the time that the batch waited for events, for sessions, for a thread of the pool and for a turn at the
// concurrency limiter.
struct CallTimings {
  absl::Duration queue;
  absl::Duration compute;
  absl::Duration commit;
};

struct CallReply {
  Applied applied;
  std::optional<StateReply> state;    // session targets
  std::vector<OutputTensor> outputs;  // in the order asked for; kMoments is in `moments`
  std::optional<Moments> moments;
  Extremes extremes;  // with `moments`, where the spec counts samples; else empty
  GroupSums exact;    // with `moments`, where want_exact asked for them; else empty
  Shape moments_shape;
  int64_t rows = 0;  // statistics groups computed, for metrics
  CallTimings timings;
  // To be reused by equal calls; null if the call had shared outputs or tensors in CUDA memory.
  std::shared_ptr<const PreparedCall> prepared;
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_CALL_H_

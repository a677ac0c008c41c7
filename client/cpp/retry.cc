#include "client/cpp/retry.h"

#include <algorithm>
#include <random>

#include "client/cpp/status.h"

namespace normd::client {

namespace {

// True if `output` may share memory with `input`. Regions never overlap one another.
bool Meets(const v1::OutputRequest& output, const v1::Tensor& input) {
  return output.has_shared() && input.has_shared() && output.shared().region() == input.shared().region() &&
         output.shared().offset() < input.shared().offset() + input.shared().size_bytes() &&
         input.shared().offset() < output.shared().offset() + output.shared().size_bytes();
}

// True if y may overwrite x: after a first try, x may be gone.
bool IsInPlace(const v1::NormalizeRequest& request) {
  return std::any_of(request.outputs().begin(), request.outputs().end(),
                     [&request](const v1::OutputRequest& output) { return Meets(output, request.x()); });
}

int MaxAttempts(const RetryOptions& options, const absl::Status& status) {
  const bool more = absl::IsResourceExhausted(status) && options.max_attempts > 1;
  return more ? std::max(options.max_attempts, options.max_attempts_for_room) : options.max_attempts;
}

}  // namespace

bool IsSafeToRetry(const v1::NormalizeRequest& request) {
  if (IsInPlace(request)) return false;
  const bool changes_state = request.target_case() == v1::NormalizeRequest::kSession &&
                             request.mode() == v1::MODE_TRAINING && !request.validate_only();
  return !changes_state || request.has_step();
}

bool IsSafeToRetry(const v1::BatchNormalizeRequest& request) {
  return std::all_of(request.items().begin(), request.items().end(),
                     [](const v1::NormalizeRequest& item) { return IsSafeToRetry(item); });
}

bool IsSafeToRetry(const v1::CommitMomentsRequest& request) { return request.has_step(); }

std::optional<absl::Duration> NextWait(const RetryOptions& options, const absl::Status& status, int attempt,
                                       absl::Duration remaining, double uniform) {
  if (attempt >= MaxAttempts(options, status)) return std::nullopt;
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  const bool asked_to_wait = info.has_value() && info->retry_delay.has_value();
  // RESOURCE_EXHAUSTED without a RetryInfo is a limit (a message too large), and waiting does not move a limit.
  const bool retryable = absl::IsUnavailable(status) || (absl::IsResourceExhausted(status) && asked_to_wait);
  if (!retryable) return std::nullopt;

  absl::Duration backoff = options.initial_backoff;
  for (int i = 1; i < attempt && backoff < options.max_backoff; ++i) backoff *= options.multiplier;
  backoff = std::min(backoff, options.max_backoff);
  absl::Duration wait = backoff * (1 - options.jitter + 2 * options.jitter * uniform);
  if (asked_to_wait) wait = std::max(wait, *info->retry_delay);
  if (wait >= remaining) return std::nullopt;
  return wait;
}

void RetryBudget::NoteSuccess() {
  const std::lock_guard<std::mutex> lock(mu_);
  tokens_ = std::min(options_.budget_tokens, tokens_ + options_.budget_return);
}

bool RetryBudget::Take() {
  const std::lock_guard<std::mutex> lock(mu_);
  if (options_.budget_tokens == 0) return true;
  if (tokens_ <= options_.budget_tokens / 2) return false;
  tokens_ -= 1;
  return true;
}

double DrawUniform() {
  std::random_device device;
  return std::uniform_real_distribution<double>(0, 1)(device);
}

}  // namespace normd::client

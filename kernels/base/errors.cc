#include "kernels/base/errors.h"

#include <charconv>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/cord.h"
#include "kernels/base/strings.h"

namespace normd {

namespace {

constexpr char kDetailUrl[] = "normd.ErrorDetail";

// The strings of `detail` one after the other, each as "<length>:<bytes>".
std::string Encode(const ErrorDetail& detail) {
  std::string encoded;
  for (const std::string& part : {detail.field, detail.value, detail.limit, detail.reason}) {
    encoded += Concat(part.size(), ":", part);
  }
  return encoded;
}

// Removes the next string of Encode's form from the front of `encoded` and returns it; nothing if the form is wrong.
std::optional<std::string> TakeString(std::string_view* encoded) {
  const size_t colon = encoded->find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  uint64_t length = 0;
  const char* const digits_end = encoded->data() + colon;
  const std::from_chars_result read = std::from_chars(encoded->data(), digits_end, length);
  if (read.ec != std::errc() || read.ptr != digits_end) return std::nullopt;
  encoded->remove_prefix(colon + 1);
  if (length > encoded->size()) return std::nullopt;
  std::string taken(encoded->substr(0, length));
  encoded->remove_prefix(length);
  return taken;
}

absl::Status Invalid(std::string_view field, std::string_view what, std::string_view value, std::string_view limit,
                     ErrorReason reason) {
  return MakeError(reason, {.field = std::string(field), .value = std::string(value), .limit = std::string(limit)},
                   what);
}

std::string JoinPath(std::string_view prefix, std::string_view field) {
  const bool joined = prefix.empty() || field.empty() || prefix.ends_with('.') || field.starts_with('[');
  return Concat(prefix, joined ? "" : ".", field);
}

}  // namespace

absl::Status MakeError(ErrorReason reason, const FieldViolation& violation, std::string_view what) {
  const auto& [field, value, limit] = violation;
  absl::Status status(reason.code(), Concat(field, ": ", what, ": ", value, "; must be ", limit));
  const ErrorDetail detail = {.field = field, .value = value, .limit = limit, .reason = std::string(reason.name())};
  status.SetPayload(kDetailUrl, absl::Cord(Encode(detail)));
  return status;
}

std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status) {
  const auto payload = status.GetPayload(kDetailUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::string bytes(*payload);
  std::string_view rest = bytes;
  ErrorDetail detail;
  for (std::string* part : {&detail.field, &detail.value, &detail.limit, &detail.reason}) {
    std::optional<std::string> taken = TakeString(&rest);
    if (!taken.has_value()) return std::nullopt;
    *part = *std::move(taken);
  }
  return detail;
}

absl::Status PrefixField(const absl::Status& status, std::string_view prefix) {
  std::optional<ErrorDetail> detail = GetErrorDetail(status);
  if (!detail.has_value()) return status;
  std::string message(status.message());
  std::string field = JoinPath(prefix, detail->field);
  if (message.starts_with(detail->field)) message.replace(0, detail->field.size(), field);
  detail->field = std::move(field);
  absl::Status result(status.code(), message);
  status.ForEachPayload(
      [&result](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  result.SetPayload(kDetailUrl, absl::Cord(Encode(*detail)));
  return result;
}

absl::Status EpsError(std::string_view field, double eps) {
  return Invalid(field, "eps out of range", NumberText(eps), "finite and at least 0", KernelReason("EPS_OUT_OF_RANGE"));
}

absl::Status MomentumError(std::string_view field, double momentum) {
  return Invalid(field, "momentum out of range", NumberText(momentum), "between 0 and 1",
                 KernelReason("MOMENTUM_OUT_OF_RANGE"));
}

absl::Status OutOfRangeError(std::string_view field, std::string_view value, std::string_view limit,
                             ErrorReason reason) {
  return Invalid(field, "out of range", value, limit, reason);
}

absl::Status ParameterLengthError(std::string_view field, int64_t got, int64_t want) {
  return Invalid(field, "wrong number of elements", Concat(got), Concat(want), KernelReason("PARAMETER_LENGTH"));
}

absl::Status ShapeMismatchError(std::string_view field, std::string_view got, std::string_view want) {
  return Invalid(field, "wrong shape", got, want, KernelReason("SHAPE_MISMATCH"));
}

absl::Status ByteCountError(std::string_view field, int64_t got, int64_t want) {
  return Invalid(field, "wrong number of bytes for dtype and shape", Concat(got), Concat(want),
                 KernelReason("BYTE_COUNT"));
}

absl::Status RankError(std::string_view field, int64_t rank, int64_t min_rank, int64_t max_rank) {
  return Invalid(field, "rank out of range", Concat(rank), Concat("between ", min_rank, " and ", max_rank),
                 KernelReason("RANK_OUT_OF_RANGE"));
}

absl::Status DimensionError(std::string_view field, int64_t dimension) {
  return Invalid(field, "negative dimension", Concat(dimension), "at least 0", KernelReason("NEGATIVE_DIMENSION"));
}

absl::Status ShapeOverflowError(std::string_view field, std::string_view shape) {
  return Invalid(field, "shape too large", shape, "a product of its non-zero dimensions below 2^60",
                 KernelReason("SHAPE_OVERFLOW"));
}

absl::Status DTypeError(std::string_view field, std::string_view value) {
  return Invalid(field, "unsupported dtype", value, "f32, f16, bf16 or f64", KernelReason("UNSUPPORTED_DTYPE"));
}

absl::Status MissingError(std::string_view field, std::string_view needed) {
  return Invalid(field, "missing", "absent", needed, KernelReason("MISSING_FIELD"));
}

absl::Status NotAllowedError(std::string_view field, std::string_view why) {
  return Invalid(field, why, "given", "absent", KernelReason("NOT_ALLOWED"));
}

}  // namespace normd

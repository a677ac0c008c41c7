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

// An error about `field` whose message is "<subject> <predicate>"; `subject` is the field or a leading part of its
// path.
absl::Status MakeErrorAbout(std::string_view subject, ErrorReason reason, const FieldViolation& violation,
                            std::string_view predicate) {
  absl::Status status(reason.code(), Concat(subject, " ", predicate));
  const auto& [field, value, limit] = violation;
  const ErrorDetail detail = {.field = field, .value = value, .limit = limit, .reason = std::string(reason.name())};
  status.SetPayload(kDetailUrl, absl::Cord(Encode(detail)));
  return status;
}

FieldViolation Violation(std::string_view field, std::string_view value, std::string_view limit) {
  return {.field = std::string(field), .value = std::string(value), .limit = std::string(limit)};
}

// `field` without a last part called `leaf`: the tensor "x" for its field "x.shape". Sentences say what the tensor has.
std::string_view Without(std::string_view leaf, std::string_view field) {
  if (field.ends_with(leaf)) field.remove_suffix(leaf.size());
  return field;
}

std::string JoinPath(std::string_view prefix, std::string_view field) {
  const bool joined = prefix.empty() || field.empty() || prefix.ends_with('.') || field.starts_with('[');
  return Concat(prefix, joined ? "" : ".", field);
}

}  // namespace

absl::Status MakeError(ErrorReason reason, const FieldViolation& violation, std::string_view predicate) {
  return MakeErrorAbout(violation.field, reason, violation, predicate);
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
  const std::string field = JoinPath(prefix, detail->field);
  const std::string_view added = std::string_view(field).substr(0, field.size() - detail->field.size());
  // The message begins with the field, or with the leading part of its path.
  absl::Status result(status.code(), Concat(added, std::string(status.message())));
  detail->field = field;
  status.ForEachPayload(
      [&result](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  result.SetPayload(kDetailUrl, absl::Cord(Encode(*detail)));
  return result;
}

absl::Status EpsError(std::string_view field, double eps) {
  return OutOfRangeError(field, NumberText(eps), "finite and at least 0", KernelReason("EPS_OUT_OF_RANGE"));
}

absl::Status MomentumError(std::string_view field, double momentum) {
  return OutOfRangeError(field, NumberText(momentum), "between 0 and 1", KernelReason("MOMENTUM_OUT_OF_RANGE"));
}

absl::Status OutOfRangeError(std::string_view field, std::string_view value, std::string_view limit,
                             ErrorReason reason) {
  return MakeError(reason, Violation(field, value, limit), Concat("is ", value, "; it must be ", limit));
}

absl::Status AmountError(std::string_view field, std::string_view value, std::string_view limit, ErrorReason reason) {
  return MakeError(reason, Violation(field, value, limit), Concat("has ", value, "; it must have ", limit));
}

absl::Status FormError(std::string_view field, std::string_view text, std::string_view form, ErrorReason reason) {
  const std::string is = text.empty() ? "empty" : Concat("\"", text, "\"");
  return MakeError(reason, Violation(field, text, form), Concat("is ", is, "; write ", form));
}

absl::Status ParameterLengthError(std::string_view field, int64_t got, int64_t want) {
  return MakeError(KernelReason("PARAMETER_LENGTH"), Violation(field, Concat(got), Concat(want)),
                   Concat("has ", got, got == 1 ? " value" : " values", "; it must have ", want));
}

absl::Status ShapeMismatchError(std::string_view field, std::string_view got, std::string_view want) {
  return MakeErrorAbout(Without(".shape", field), KernelReason("SHAPE_MISMATCH"), Violation(field, got, want),
                        Concat("has shape ", got, "; it must have ", want));
}

absl::Status ByteCountError(std::string_view field, int64_t got, int64_t want, std::string_view dtype,
                            std::string_view shape) {
  const std::string makes = dtype.empty() ? Concat("shape ", shape, " makes ", want)
                                          : Concat("dtype ", dtype, " and shape ", shape, " make ", want);
  return MakeErrorAbout(Without(".size_bytes", field), KernelReason("BYTE_COUNT"),
                        Violation(field, Concat(got), Concat(want)),
                        Concat("has ", got, got == 1 ? " byte; " : " bytes; ", makes));
}

absl::Status RankError(std::string_view field, int64_t rank, int64_t min_rank, int64_t max_rank) {
  const std::string limit = Concat("between ", min_rank, " and ", max_rank);
  return MakeErrorAbout(Without(".shape", field), KernelReason("RANK_OUT_OF_RANGE"),
                        Violation(field, Concat(rank), limit), Concat("has rank ", rank, "; the rank must be ", limit));
}

absl::Status DimensionError(std::string_view field, int64_t dimension) {
  return OutOfRangeError(field, Concat(dimension), "at least 0", KernelReason("NEGATIVE_DIMENSION"));
}

absl::Status ShapeOverflowError(std::string_view field, std::string_view shape) {
  return MakeErrorAbout(Without(".shape", field), KernelReason("SHAPE_OVERFLOW"),
                        Violation(field, shape, "a product of its non-zero dimensions below 2^60"),
                        Concat("has shape ", shape, "; it must have a product of its non-zero dimensions below 2^60"));
}

absl::Status DTypeError(std::string_view field, std::string_view value) {
  return OutOfRangeError(field, value, "f32, f16, bf16 or f64", KernelReason("UNSUPPORTED_DTYPE"));
}

absl::Status MissingError(std::string_view field, std::string_view needed) {
  return MakeError(KernelReason("MISSING_FIELD"), Violation(field, "", needed), Concat("is missing; give ", needed));
}

absl::Status NotAllowedError(std::string_view field, std::string_view why) {
  return MakeError(KernelReason("NOT_ALLOWED"), Violation(field, "", "absent"),
                   Concat("is given, but ", why, "; leave it out"));
}

absl::Status ExclusiveError(std::string_view field, std::string_view other) {
  return MakeError(KernelReason("NOT_ALLOWED"), Violation(field, "", "absent"),
                   Concat("and ", other, " are both given; give one of them"));
}

}  // namespace normd

#include "server/rpc/edge/call_trace.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "proto/wire/metadata.h"
#include "server/base/random_number.h"

namespace normd {
namespace {

constexpr size_t kMaxRequestId = 128;  // bytes

// Visible ASCII, so that the id can be a header and a field of a log line.
bool IsRequestId(std::string_view text) {
  return !text.empty() && text.size() <= kMaxRequestId &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

std::string CallTrace::RequestId() const { return given_id.empty() ? absl::StrFormat("%016x", number) : given_id; }

void ReadTraceHeader(std::string_view name, std::string_view value, CallTrace& trace) {
  if (name == wire::kTraceparentKey) {
    trace.parent = ParseTraceparent(value);
  } else if (name == wire::kRequestIdKey) {
    if (IsRequestId(value)) trace.given_id = std::string(value);
  } else if (name == wire::kExplainKey) {
    trace.explain = value == "1" || value == "true";
  }
}

void BeginTrace(const std::function<bool()>& sample, CallTrace& trace) {
  trace.number = RandomNumber();
  if (trace.parent.has_value()) {
    trace.span.trace_id = trace.parent->trace_id;
    trace.span.sampled = trace.parent->sampled && sample != nullptr;
  } else {
    trace.span.sampled = sample != nullptr && sample();
    if (trace.span.sampled) trace.span.trace_id = MakeTraceId();
  }
  if (trace.has_trace()) trace.span.span_id = MakeSpanId();
}

}  // namespace normd

// A finished span, as the exporter takes it. A plain value.
#ifndef NORMD_SERVER_TRACES_SPAN_H_
#define NORMD_SERVER_TRACES_SPAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "server/base/traceparent.h"

namespace normd {

// Names are static text.
using SpanAttribute = std::pair<std::string_view, std::variant<std::string, int64_t>>;

// A part of a span's time; parts follow each other, the first from the span's start on.
struct SpanPart {
  std::string_view name;
  absl::Duration duration;
};

// What the server did for one request.
struct FinishedSpan {
  TraceId trace_id = {};
  SpanId span_id = {};
  SpanId parent_id = {};  // all zero: none
  std::string name;       // "normd.v1.Normalizer/Normalize"
  absl::Time start, end;  // by the time of day
  bool failed = false;    // by the server's fault
  std::string error;      // the message of that failure
  std::vector<SpanAttribute> attributes;
  std::vector<SpanPart> parts;  // each becomes a span of its own below this one; those without length are left out
};

}  // namespace normd

#endif  // NORMD_SERVER_TRACES_SPAN_H_

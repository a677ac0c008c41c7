// W3C Trace Context (https://www.w3.org/TR/trace-context/): the header `traceparent`, by which callers say which trace
// a call belongs to. In the path: read at a call's headers, and written to its trailers. Pure functions on plain
// values.
#ifndef NORMD_SERVER_BASE_TRACEPARENT_H_
#define NORMD_SERVER_BASE_TRACEPARENT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace normd {

// 16 and 8 bytes that are not all zero.
using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

// A span, and whether its trace is recorded.
struct TraceParent {
  TraceId trace_id = {};
  SpanId span_id = {};
  bool sampled = false;
};

// Parses "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", and later versions as far as version 00 goes.
// Returns nullopt for anything else; the standard says that the call then starts a trace of its own.
std::optional<TraceParent> ParseTraceparent(std::string_view header);

// Returns the header in version 00.
std::string FormatTraceparent(const TraceParent& parent);

// Returns the id in hexadecimal, as log lines show it.
std::string TraceIdText(const TraceId& id);

// New ids, from RandomNumber.
TraceId MakeTraceId();
SpanId MakeSpanId();

}  // namespace normd

#endif  // NORMD_SERVER_BASE_TRACEPARENT_H_

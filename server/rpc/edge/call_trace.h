// What logs and traces call one call: its request id, its trace, and whether its caller wants it explained.
// In the path: filled from the call's headers before anything else is looked at. A plain value, constant from the time
// when the call was let in or denied.
#ifndef NORMD_SERVER_RPC_EDGE_CALL_TRACE_H_
#define NORMD_SERVER_RPC_EDGE_CALL_TRACE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "server/base/traceparent.h"

namespace normd {

struct CallTrace {
  uint64_t number = 0;                // random; names the call where its caller does not
  std::string given_id;               // the caller's x-request-id; empty if there is none, or none that can be used
  std::optional<TraceParent> parent;  // the caller's span, from its traceparent
  TraceParent span;                   // the call's own; its trace_id is all zero where there is no trace
  bool explain = false;               // the caller wants an explanation: the work that was done, and its duration

  // The caller's name for the call, or 16 hexadecimal digits.
  std::string RequestId() const;
  // Whether the call belongs to a trace: its caller said so, or the server has chosen it.
  bool has_trace() const { return parent.has_value() || span.sampled; }
  // Whether the call is recorded beyond counters.
  bool wants_details() const { return explain || span.sampled; }
};

// Reads a header of the call into `trace`: traceparent, x-request-id or normd-explain; any other is ignored, and so is
// a value that cannot be used.
void ReadTraceHeader(std::string_view name, std::string_view value, CallTrace& trace);

// Completes a trace whose headers were read. `sample` says whether to record a call whose caller has not decided; if it
// is empty, nothing is recorded.
void BeginTrace(const std::function<bool()>& sample, CallTrace& trace);

}  // namespace normd

#endif  // NORMD_SERVER_RPC_EDGE_CALL_TRACE_H_

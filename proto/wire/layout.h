// The places of tensor bytes in the messages of normd.v1: the fields that lead to them.
// In the path: Split (split.h) walks messages by these tables. tests/proto compares the tables with the .proto files.
// Constants, safe from any thread.
#ifndef NORMD_PROTO_WIRE_LAYOUT_H_
#define NORMD_PROTO_WIRE_LAYOUT_H_

#include <cstdint>

#include "absl/types/span.h"

namespace normd::wire {

// Those fields of a message that are tensor bytes, or messages that may contain some.
struct MessageLayout {
  struct Field {
    uint32_t number;
    const MessageLayout* message;  // null: the field is the tensor bytes
  };
  absl::Span<const Field> fields;
};

extern const MessageLayout kNormalizeRequest;
extern const MessageLayout kNormalizeResponse;
extern const MessageLayout kBatchNormalizeRequest;
extern const MessageLayout kBatchNormalizeResponse;
extern const MessageLayout kStreamRequest;
extern const MessageLayout kStreamResponse;
extern const MessageLayout kComputeMomentsRequest;
extern const MessageLayout kComputeMomentsResponse;

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_LAYOUT_H_

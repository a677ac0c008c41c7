// Exact sums as bytes: what workers send each other and a session will keep. Equal sums have equal bytes, and bytes
// that no sums have are refused, so that bytes may be compared and hashed instead of sums.
//
// All integers are little-endian. A header of 8 bytes:
//
//   0  u8   version, 1
//   1  u8   range: 1 narrow (f32, f16, bf16), 2 wide (f64)
//   2  u16  0
//   4  u32  the number of channels
//
// Each channel follows with 136 bytes (narrow) or 816 bytes (wide):
//
//   0  u64  bits 0 to 53: count, of all elements; bit 61: NaN was among them, bit 62: +Inf, bit 63: -Inf
//   8  the sum of the finite elements, in two's complement, the lowest byte first:
//        narrow 48 bytes in units of 2^-192, wide 272 bytes in units of 2^-1088
//   .  the sum of their squares, likewise: narrow 80 bytes in units of 2^-320, wide 536 bytes in units of 2^-2176
//
// In the path: kernels/exact_sums/group_sums.h makes Moments.exact of proto/normd/v1/normalizer.proto of them, and
// reads it. Pure functions, safe from any thread. A channel costs 0.1 to 1 us to check.
#ifndef NORMD_KERNELS_EXACT_SUMS_BYTES_H_
#define NORMD_KERNELS_EXACT_SUMS_BYTES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/exact_sums/exact_sums.h"

namespace normd {

// The bytes of one ExactSums a channel. REQUIRES: fewer than 2^32 channels.
template <typename Range>
std::string EncodeExactSums(absl::Span<const ExactSums<Range>> channels);

// The sums of these bytes. INVALID_ARGUMENT, naming the field under `exact`, if the bytes are not of this version
// and range or not as many as the channels take, or if no elements can have such sums: a count above 2^53, a sum of
// nothing that is not 0, digits below the least element, more than `count` of the largest, a negative variance.
//
//   std::string bytes = EncodeExactSums<NarrowRange>(sums);
//   NORMD_ASSIGN_OR_RETURN(std::vector<NarrowExactSums> same, DecodeExactSums<NarrowRange>(bytes));
template <typename Range>
absl::StatusOr<std::vector<ExactSums<Range>>> DecodeExactSums(std::string_view bytes);

// Whether the header names the wide range. False for bytes that are too short to have a header.
bool IsWideExactSums(std::string_view bytes);

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_BYTES_H_

// Large inputs: cuts one request along the first axis into several that the server takes one by one, and joins the
// replies. The bytes are those of one request, because a method that may be cut never looks across rows.
#ifndef NORMD_CLIENT_NORMCTL_SPLIT_H_
#define NORMD_CLIENT_NORMCTL_SPLIT_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace normd::client {

// Whether the elements of one index of the first axis depend on that index alone. `spec` is the session's where the
// request has a session.
bool RowsAreIndependent(const v1::NormSpec& spec, v1::Mode mode, int rank);

// The request for indices [first, first + count) of the first axis of x: x is cut, and the residual and the mask where
// they have as many. Every other field is as in `request`.
v1::NormalizeRequest CutRows(const v1::NormalizeRequest& request, int64_t first, int64_t count);

// Appends `piece` to `whole`: y, h and statistics along the first axis; timings add up. `per_row_statistics` is false
// where MEAN and INV_STD are given ones, the same in every piece.
absl::Status AppendRows(v1::NormalizeResponse piece, bool per_row_statistics, v1::NormalizeResponse& whole);

// Sends `request`, in pieces of at most `max_bytes` where it is larger, or in chunks on a stream where it may not be
// cut. `progress(done, all)` is told the rows after each piece.
absl::StatusOr<v1::NormalizeResponse> NormalizeInPieces(Client& client, const v1::NormalizeRequest& request,
                                                        const v1::NormSpec& spec, int64_t max_bytes,
                                                        const std::function<void(int64_t, int64_t)>& progress);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_SPLIT_H_

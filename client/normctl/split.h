// Large inputs: cuts one request along the first axis into requests that the server takes one by one, and joins the
// replies. The bytes equal those of one request, because a method that may be cut never looks across rows. Pure
// functions, except NormalizeInPieces, which calls the server.
#ifndef NORMD_CLIENT_NORMCTL_SPLIT_H_
#define NORMD_CLIENT_NORMCTL_SPLIT_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace normd::client {

// True if the results at one index of the first axis depend on that index alone. `spec` is the session's spec if the
// request names a session.
bool RowsAreIndependent(const v1::NormSpec& spec, v1::Mode mode, int rank);

// The request for the indices [first, first + count) of x's first axis. x is cut, and so are the residual and the mask
// if they have the same first extent. Every other field is copied.
v1::NormalizeRequest CutRows(const v1::NormalizeRequest& request, int64_t first, int64_t count);

// Appends `piece` to `whole`: y, h and statistics along the first axis; timings add up. `per_row_statistics` is false
// if MEAN and INV_STD are given statistics, which are the same in every piece.
absl::Status AppendRows(v1::NormalizeResponse piece, bool per_row_statistics, v1::NormalizeResponse& whole);

// Sends `request`: whole if it has at most `max_bytes`, else in pieces of at most `max_bytes`, or in chunks on a stream
// if it may not be cut. Calls `progress(rows_done, rows)` after each piece.
absl::StatusOr<v1::NormalizeResponse> NormalizeInPieces(Client& client, const v1::NormalizeRequest& request,
                                                        const v1::NormSpec& spec, int64_t max_bytes,
                                                        const std::function<void(int64_t, int64_t)>& progress);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_SPLIT_H_

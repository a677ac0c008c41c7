// Large inputs: cuts one request along an axis of x into requests that the server takes one by one, and joins the
// replies. The bytes equal those of one request, because a method is cut only along axes that it never looks across.
// Pure functions, except NormalizeInPieces, which calls the server.
#ifndef NORMD_CLIENT_NORMCTL_SPLIT_H_
#define NORMD_CLIENT_NORMCTL_SPLIT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace normd::client {

// The axes of x, of rank `rank`, whose indices have results of their own: y at one index depends on x at that index
// alone. LayerNorm of [N, T, D] over D has 0 and 1; BatchNorm in inference has all but the channels' axis. `spec` is
// the session's spec if the request names a session.
std::vector<int> IndependentAxes(const v1::NormSpec& spec, v1::Mode mode, int rank);

// Along which axis to cut a request, and into how many indices a piece.
struct Cut {
  int axis = 0;
  int64_t indices = 0;
};
// A cut into pieces of at most `max_bytes`, along the first axis that allows it; nullopt if none does.
std::optional<Cut> ChooseCut(const v1::NormalizeRequest& request, const v1::NormSpec& spec, int64_t max_bytes);

// The request for the indices [first, first + count) of an axis of x. x is cut, and so are the residual and the mask if
// they have the same extent there. Every other field is copied.
v1::NormalizeRequest CutAxis(const v1::NormalizeRequest& request, int axis, int64_t first, int64_t count);

// Joins the replies to the pieces of one request. Thread-compatible.
class PieceJoiner {
 public:
  // Pieces of an x with `extent` indices of `axis`. `joins_statistics` is false if MEAN and INV_STD are given
  // statistics, which are the same in every piece.
  PieceJoiner(int axis, int64_t extent, bool joins_statistics)
      : axis_(axis), extent_(extent), joins_statistics_(joins_statistics) {}

  // Takes the reply to the piece that starts at index `first`: its outputs and timings. INTERNAL if the outputs are not
  // those of a piece, which no server sends.
  absl::Status Add(v1::NormalizeResponse piece, int64_t first);
  const v1::NormalizeResponse& whole() const { return whole_; }
  v1::NormalizeResponse Take() { return std::move(whole_); }

 private:
  bool IsJoined(v1::OutputKind kind) const;
  absl::Status AddTensor(const v1::Tensor& piece, int64_t first, v1::Tensor& whole) const;

  const int axis_;
  const int64_t extent_;
  const bool joins_statistics_;
  bool is_empty_ = true;
  v1::NormalizeResponse whole_;
};

// What a user can do about an x of `x_bytes` that is too large for the server and cannot be cut. `request` and `spec`
// say how it was to be normalised. Starts with a blank.
std::string TooLargeRemedy(int64_t x_bytes, const v1::NormalizeRequest& request, const v1::NormSpec& spec);

// Sends `request`: whole if it has at most `max_bytes`, else in pieces of at most `max_bytes`, or as Client::Normalize
// sends large requests if it may not be cut. Calls `progress(done, all)` after each piece. The error for a tensor that
// is too large for the server says what can be done.
absl::StatusOr<v1::NormalizeResponse> NormalizeInPieces(Client& client, const v1::NormalizeRequest& request,
                                                        const v1::NormSpec& spec, int64_t max_bytes,
                                                        const std::function<void(int64_t, int64_t)>& progress);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_SPLIT_H_

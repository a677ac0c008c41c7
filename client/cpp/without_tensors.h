// A request whose tensors travel apart from it: in chunks, in shared memory, or row by row. By reflection, so that a
// field that the contract gains is copied, too. Pure.
#ifndef NORMD_CLIENT_CPP_WITHOUT_TENSORS_H_
#define NORMD_CLIENT_CPP_WITHOUT_TENSORS_H_

#include "absl/types/span.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// Copies into `copy`, which is empty, everything of `request` but `data` of the tensors in `apart`: not even for a
// while is that held twice. They are parts of `request` that no repeated field holds; what is no part is overlooked, so
// the default instance of an absent tensor may be among them.
void CopyWithoutBytes(const v1::NormalizeRequest& request, absl::Span<const v1::Tensor* const> apart,
                      v1::NormalizeRequest* copy);

// The same, with x and residual.tensor apart.
void CopyWithoutTensors(const v1::NormalizeRequest& request, v1::NormalizeRequest* copy);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_WITHOUT_TENSORS_H_

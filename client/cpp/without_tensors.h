// Copies a request whose tensors travel separately: in chunks, in shared memory, or row by row. By reflection, so that
// a field that the contract gains is copied, too. Pure functions.
#ifndef NORMD_CLIENT_CPP_WITHOUT_TENSORS_H_
#define NORMD_CLIENT_CPP_WITHOUT_TENSORS_H_

#include "absl/types/span.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// Copies everything of `request` into the empty `copy`, except the `data` of the tensors in `apart`, which is never
// held twice, not even for a moment. Tensors in `apart` are parts of `request` that lie in no repeated field. Pointers
// to anything else are ignored, so `apart` may hold the default instance of an absent tensor.
void CopyWithoutBytes(const v1::NormalizeRequest& request, absl::Span<const v1::Tensor* const> apart,
                      v1::NormalizeRequest* copy);

// As CopyWithoutBytes, with x and residual.tensor apart.
void CopyWithoutTensors(const v1::NormalizeRequest& request, v1::NormalizeRequest* copy);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_WITHOUT_TENSORS_H_

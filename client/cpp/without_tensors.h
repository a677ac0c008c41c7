// A request whose tensors travel apart from it: in chunks, or in shared memory. Pure.
#ifndef NORMD_CLIENT_CPP_WITHOUT_TENSORS_H_
#define NORMD_CLIENT_CPP_WITHOUT_TENSORS_H_

#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// Everything of `request` but the bytes of x and residual.tensor.
void CopyWithoutTensors(const v1::NormalizeRequest& request, v1::NormalizeRequest* copy);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_WITHOUT_TENSORS_H_

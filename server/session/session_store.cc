#include "server/session/session_store.h"

namespace normd {

TensorView OwnedTensor::View() const {
  return {.dtype = dtype, .shape = shape, .data = bytes.data(), .size_bytes = static_cast<int64_t>(bytes.size())};
}

}  // namespace normd

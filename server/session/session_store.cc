#include "server/session/session_store.h"

namespace normd {

TensorView OwnedTensor::View() const {
  return {.dtype = dtype, .shape = shape, .data = bytes.data(), .size_bytes = static_cast<int64_t>(bytes.size())};
}

int64_t ValuesOf(const RunningState& state) {
  size_t values = 0;
  for (const std::vector<double>* vector :
       {&state.mean, &state.var, &state.phi, &state.count, &state.m2, &state.min, &state.max}) {
    values += vector->size();
  }
  return static_cast<int64_t>(values);
}

int64_t LowValuesOf(const RunningState& state) {
  return static_cast<int64_t>(state.count_low.size() + state.mean_low.size() + state.m2_low.size());
}

}  // namespace normd

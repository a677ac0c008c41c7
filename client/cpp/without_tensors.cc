#include "client/cpp/without_tensors.h"

namespace normd::client {
namespace {

void CopyMetadata(const v1::Tensor& tensor, v1::Tensor* copy) {
  copy->set_dtype(tensor.dtype());
  *copy->mutable_shape() = tensor.shape();
}

}  // namespace

void CopyWithoutTensors(const v1::NormalizeRequest& request, v1::NormalizeRequest* copy) {
  if (request.has_spec()) *copy->mutable_spec() = request.spec();
  if (request.has_session()) copy->set_session(request.session());
  copy->set_mode(request.mode());
  if (request.has_parameters()) *copy->mutable_parameters() = request.parameters();
  if (request.has_residual()) {
    v1::Residual* const residual = copy->mutable_residual();
    if (request.residual().has_tensor()) CopyMetadata(request.residual().tensor(), residual->mutable_tensor());
    if (request.residual().has_scale()) residual->set_scale(request.residual().scale());
    residual->set_rounding(request.residual().rounding());
  }
  if (request.has_mask()) *copy->mutable_mask() = request.mask();
  *copy->mutable_outputs() = request.outputs();
  copy->set_precision(request.precision());
  copy->set_device(request.device());
  if (request.has_step()) *copy->mutable_step() = request.step();
  if (request.has_expected_version()) copy->set_expected_version(request.expected_version());
  copy->set_validate_only(request.validate_only());
  copy->set_want_timings(request.want_timings());
  if (request.has_max_staleness()) *copy->mutable_max_staleness() = request.max_staleness();
  if (request.has_x()) CopyMetadata(request.x(), copy->mutable_x());
}

}  // namespace normd::client

// A request of each method that needs no session, from the case list's types.
#ifndef NORMD_TESTS_E2E_METHOD_CASES_H_
#define NORMD_TESTS_E2E_METHOD_CASES_H_

#include <vector>

#include "kernels/methods.h"
#include "normd/v1/normalizer.pb.h"
#include "server/session/record/spec_messages.h"
#include "tests/support/case.h"
#include "tests/support/run_case.h"
#include "tests/support/spec.h"

namespace normd::e2e {

// One case of each method: enough for the codec; the kernels have their own lists.
inline std::vector<Case> OneCaseOfEachMethod() {
  std::vector<Case> cases;
  for (const Method method : kAllMethods) {
    Case c;
    c.spec = SpecOf(method, Layout::kChannelsFirst);
    c.shape = {3, 4, 6};
    if (method == Method::kLayerNorm) SetNormalizedShape(&c.spec, {6});
    if (method == Method::kPRmsNorm) c.spec.attributes = PRmsNormSpec{.p = 0.5};
    if (method == Method::kGroupNorm) SetNumGroups(&c.spec, 2);
    if (method == Method::kBatchNorm) c.options.mode = Mode::kTraining;
    if (method != Method::kLpNorm) c.weight = DType::kF32;
    cases.push_back(c);
  }
  std::erase_if(cases, [](const Case& c) { return c.spec.method() == Method::kPowerNorm; });  // it needs a session
  return cases;
}

inline v1::NormalizeRequest RequestOf(const Case& c, const NormPlan& plan, const CaseData& data) {
  v1::NormalizeRequest request;
  SpecToMessage(c.spec, request.mutable_spec());
  request.set_mode(static_cast<v1::Mode>(c.options.mode));
  request.mutable_x()->set_dtype(static_cast<v1::DType>(c.dtype));
  request.mutable_x()->mutable_shape()->Assign(c.shape.begin(), c.shape.end());
  request.mutable_x()->set_data(data.x);
  if (c.weight.has_value()) {
    v1::Tensor* const weight = request.mutable_parameters()->mutable_weight();
    weight->set_dtype(static_cast<v1::DType>(*c.weight));
    weight->add_shape(plan.parameter_length);
    weight->set_data(data.weight);
  }
  return request;
}

}  // namespace normd::e2e

#endif  // NORMD_TESTS_E2E_METHOD_CASES_H_

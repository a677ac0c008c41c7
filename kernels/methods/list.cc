#include "kernels/methods/list.h"

#include <iterator>

namespace normd {
namespace {

// In the order of kAllMethods.
constinit const MethodDefinition* const kDefinitions[] = {
    &methods::kBatchNorm, &methods::kLayerNorm, &methods::kInstanceNorm, &methods::kGroupNorm, &methods::kRmsNorm,
    &methods::kPRmsNorm,  &methods::kScaleNorm, &methods::kLpNorm,       &methods::kPowerNorm,
};
static_assert(std::size(kDefinitions) == std::size(kAllMethods));

}  // namespace

absl::Span<const MethodDefinition* const> AllMethods() { return kDefinitions; }

bool IsMethod(Method method) {
  const auto number = static_cast<size_t>(method);
  return number >= 1 && number <= std::size(kDefinitions);
}

const MethodDefinition& DefinitionOf(Method method) { return *kDefinitions[static_cast<int>(method) - 1]; }

}  // namespace normd

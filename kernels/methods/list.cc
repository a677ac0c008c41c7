// The list of the methods, each declared in a file of its own. Constant data.
#include <iterator>

#include "kernels/methods.h"

namespace normd {
namespace methods {

extern const MethodDefinition kBatchNorm;
extern const MethodDefinition kLayerNorm;
extern const MethodDefinition kInstanceNorm;
extern const MethodDefinition kGroupNorm;
extern const MethodDefinition kRmsNorm;
extern const MethodDefinition kPRmsNorm;
extern const MethodDefinition kScaleNorm;
extern const MethodDefinition kLpNorm;
extern const MethodDefinition kPowerNorm;

}  // namespace methods

namespace {

// In the order of kAllMethods.
constinit const MethodDefinition* const kDefinitions[] = {
    &methods::kBatchNorm, &methods::kLayerNorm, &methods::kInstanceNorm, &methods::kGroupNorm, &methods::kRmsNorm,
    &methods::kPRmsNorm,  &methods::kScaleNorm, &methods::kLpNorm,       &methods::kPowerNorm,
};
static_assert(std::size(kDefinitions) == std::size(kAllMethods));

}  // namespace

absl::Span<const MethodDefinition* const> AllMethods() { return kDefinitions; }

const MethodDefinition& DefinitionOf(Method method) { return *kDefinitions[static_cast<int>(method) - 1]; }

}  // namespace normd

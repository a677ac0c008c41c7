// The methods, each declared in a file of its own. Constant data.
#ifndef NORMD_KERNELS_METHODS_LIST_H_
#define NORMD_KERNELS_METHODS_LIST_H_

#include "kernels/methods.h"

namespace normd::methods {

extern const MethodDefinition kBatchNorm;
extern const MethodDefinition kLayerNorm;
extern const MethodDefinition kInstanceNorm;
extern const MethodDefinition kGroupNorm;
extern const MethodDefinition kRmsNorm;
extern const MethodDefinition kPRmsNorm;
extern const MethodDefinition kScaleNorm;
extern const MethodDefinition kLpNorm;
extern const MethodDefinition kPowerNorm;

}  // namespace normd::methods

#endif  // NORMD_KERNELS_METHODS_LIST_H_

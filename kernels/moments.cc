#include "kernels/moments.h"

namespace normd {

Moment Merge(const Moment& a, const Moment& b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const double count = a.count + b.count;
  const double delta = b.mean - a.mean;
  // The ratios come first, because delta squared times a count may overflow where the result does not.
  const double mean = a.mean + delta * (b.count / count);
  const double between = (delta * (a.count / count)) * (delta * b.count);
  return {.count = count, .mean = mean, .m2 = a.m2 + b.m2 + between};
}

}  // namespace normd

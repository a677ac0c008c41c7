#include "server/base/random_number.h"

#include <limits>

#include "absl/random/random.h"

namespace normd {

uint64_t RandomNumber() {
  thread_local absl::InsecureBitGen generator;
  return absl::Uniform<uint64_t>(absl::IntervalClosedClosed, generator, 0, std::numeric_limits<uint64_t>::max());
}

}  // namespace normd

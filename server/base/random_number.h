// Fast random numbers, for sampling and for ids that need to be different but not secret. Not for keys and tokens.
// In the path: at a call's headers. Safe from any thread: each has a generator of its own, seeded by the system.
#ifndef NORMD_SERVER_BASE_RANDOM_NUMBER_H_
#define NORMD_SERVER_BASE_RANDOM_NUMBER_H_

#include <cstdint>

namespace normd {

// Returns 64 random bits.
uint64_t RandomNumber();

}  // namespace normd

#endif  // NORMD_SERVER_BASE_RANDOM_NUMBER_H_

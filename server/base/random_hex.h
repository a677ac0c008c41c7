// Random names for objects of which no two may ever have the same name, not even after a restart. Safe from any thread.
#ifndef NORMD_SERVER_BASE_RANDOM_HEX_H_
#define NORMD_SERVER_BASE_RANDOM_HEX_H_

#include <string>

namespace normd {

// Returns `words` times 32 bits of the system's random numbers in hexadecimal: RandomHex(2) is "09af314cd2b8e6f1".
std::string RandomHex(int words);

}  // namespace normd

#endif  // NORMD_SERVER_BASE_RANDOM_HEX_H_

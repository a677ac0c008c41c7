// Reads the environment of a test program. Between no threads that change it; views borrow from the environment.
#ifndef NORMD_TESTS_SUPPORT_ENVIRONMENT_H_
#define NORMD_TESTS_SUPPORT_ENVIRONMENT_H_

#include <string_view>

namespace normd {

// The value of the variable `name`, or "" where it is not set.
std::string_view Environment(std::string_view name);

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_ENVIRONMENT_H_

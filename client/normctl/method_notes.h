// What normctl makes of the catalogue of methods without asking a server: examples, wrapped formulas, defaults. Pure
// functions.
#ifndef NORMD_CLIENT_NORMCTL_METHOD_NOTES_H_
#define NORMD_CLIENT_NORMCTL_METHOD_NOTES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"
#include "normd/v1/norm.pb.h"
#include "proto/catalogue/methods.h"

namespace normd::client {

// The catalogue has the standard library's views, which are not Abseil's where Abseil was built for C++14.
inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }
// The method of this name; null if there is none.
const MethodInfo* FindMethodOf(absl::string_view name);
// The default of an attribute as people write it: "1e-5" for eps. REQUIRES: the method has the attribute.
std::string_view DefaultOf(const MethodInfo& method, std::string_view attribute);

// "normctl layer-norm x.npy -o y.npy --eps 1e-6".
std::string ExampleOf(const MethodInfo& method);

// The formula in lines of at most `width` characters that start with two blanks: one part, as its semicolons say, after
// the other.
std::string FormulaText(absl::string_view formula, size_t width);

// Sets every attribute of the spec's method that is absent and has a default to the default. Returns the names of the
// fields that were set, those of running statistics as "running.momentum".
std::vector<std::string> FillDefaults(v1::NormSpec& spec);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_METHOD_NOTES_H_

// What the client knows of a method without asking a server: the defaults of the contract (the comments of norm.proto),
// the formula, and an example. Tests compare the table with what a server describes. Constant data, pure functions.
#ifndef NORMD_CLIENT_NORMCTL_METHOD_NOTES_H_
#define NORMD_CLIENT_NORMCTL_METHOD_NOTES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "normd/v1/norm.pb.h"

namespace normd::client {

struct MethodNote {
  absl::string_view method;   // the name of a NormSpec field
  absl::string_view formula;  // as MethodDescription.formula
  absl::string_view eps;      // the default, as people write it: "1e-5"
  v1::EpsMode eps_mode;
  bool has_state;  // a session of the method learns from training steps
  bool takes_mask;
  absl::string_view example;  // the flags of an example of normctl METHOD, after the input
};

absl::Span<const MethodNote> AllMethodNotes();
// The note of a NormSpec field; nullptr for other words.
const MethodNote* FindMethodNote(absl::string_view method);

// "normctl layer-norm x.npy -o y.npy --eps 1e-6".
std::string ExampleOf(const MethodNote& note);

// The formula in lines of at most `width` characters that start with two blanks: one part, as its semicolons say, after
// the other.
std::string FormulaText(absl::string_view formula, size_t width);

// Sets every attribute of the spec's method that is absent and has a default to the default. Returns the names of the
// fields that were set, those of running statistics as "running.momentum".
std::vector<std::string> FillDefaults(v1::NormSpec& spec);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_METHOD_NOTES_H_

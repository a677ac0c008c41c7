// Parses the policy file (TOML); server/README.md describes it. In the path: beside it, at the start and at each
// reload. Pure function, which borrows nothing.
#ifndef NORMD_SERVER_SECURITY_POLICY_FILE_H_
#define NORMD_SERVER_SECURITY_POLICY_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/security/policy.h"
#include "server/security/source_file.h"

namespace normd {

// Returns BAD_FILE, which names the line and the key, for text that is not TOML, for keys that a policy does not have,
// for values of another type, and for patterns that no identity, or none of `methods` (the paths of the methods that
// there are), can match: a rule that is misspelled must not go for a rule.
absl::StatusOr<Policy> ParsePolicy(const SourceFile& file, std::string_view text,
                                   const std::vector<std::string>& methods);

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_POLICY_FILE_H_

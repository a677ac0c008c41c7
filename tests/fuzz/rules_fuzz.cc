// Any bytes as a tokens file and as a policy file: whatever they are, there is a list or an error that names the file,
// and what is taken can be asked.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "server/security/policy_file.h"
#include "server/security/token_list.h"

namespace normd {
namespace {

// A bug is an abort that libFuzzer reports with the input.
void Require(bool condition) {
  if (!condition) std::abort();
}

const std::vector<std::string>& Methods() {
  static const std::vector<std::string> methods = {"/normd.v1.Sessions/GetSession", "/grpc.health.v1.Health/Check"};
  return methods;
}

void RequireNamed(const absl::Status& status) {
  Require(absl::IsInvalidArgument(status) && status.message().find("/a/file") != absl::string_view::npos);
}

void TakeTokens(std::string_view text) {
  const absl::StatusOr<TokenList> list = TokenList::Parse({.option = "--tokens_file", .path = "/a/file"}, text);
  if (!list.ok()) return RequireNamed(list.status());
  for (const TokenRow& row : list->rows()) Require(IsTokenName(row.name));
  Require(!list->Find(text).has_value());
}

void TakePolicy(std::string_view text) {
  const absl::StatusOr<Policy> policy = ParsePolicy({.option = "--policy_file", .path = "/a/file"}, text, Methods());
  if (!policy.ok()) return RequireNamed(policy.status());
  for (const char* identity : {"uid:0", "token:ci", "anonymous"}) {
    policy->TenantOf(identity);
    if (policy->Allows(identity, Methods()[0])) Require(!policy->allow.empty());
  }
}

}  // namespace
}  // namespace normd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  normd::TakeTokens(text);
  normd::TakePolicy(text);
  return 0;
}

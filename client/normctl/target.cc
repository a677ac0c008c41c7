#include "client/normctl/target.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/spec_flags.h"
#include "client/normctl/session_message.h"

namespace normd::client {

absl::StatusOr<v1::NormSpec> SetTarget(Client& client, const std::string& method, const ParsedArgs& args,
                                       v1::NormalizeRequest& request) {
  if (!args.Has("session")) {
    if (method.empty()) return UsageError("normalize needs --session NAME");
    const std::vector<int64_t> shape(request.x().shape().begin(), request.x().shape().end());
    absl::StatusOr<v1::NormSpec> spec = BuildSpec(method, args, shape);
    if (spec.ok()) *request.mutable_spec() = *spec;
    return spec;
  }
  for (const FlagSpec& flag : SpecFlags(method)) {
    if (args.Has(flag.name)) return UsageError(absl::StrCat("--", flag.name, " does not go with --session"));
  }
  request.set_session(SessionName(*args.Get("session")));
  const absl::StatusOr<v1::Session> session = client.GetSession(request.session());
  if (!session.ok()) return session.status();
  if (!method.empty() && MethodOf(session->spec()) != method) {
    return UsageError(absl::StrCat(session->name(), " is a ", MethodOf(session->spec()), ", not a ", method));
  }
  return session->spec();
}

}  // namespace normd::client

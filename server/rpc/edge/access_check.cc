#include "server/rpc/edge/access_check.h"

#include <memory>
#include <utility>

#include "kernels/base/strings.h"

namespace normd::rpc {

std::string PeerName(const RpcCall& call) {
  if (const std::string& name = call.PeerCertificateName(); !name.empty()) return name;
  const std::optional<uint32_t>& uid = call.connection().uid();
  return uid.has_value() ? Concat("uid:", *uid) : "anonymous";
}

std::optional<AccessDenial> CheckAccess(AccessControl* access, size_t method, RpcCall* call) {
  if (access == nullptr) {
    call->SetIdentity(std::make_shared<Identity>(Identity{PeerName(*call), ""}));
    return std::nullopt;
  }
  const auto authorization = call->Authorization();
  const auto peer_name = [call] { return PeerName(*call); };
  const Credentials credentials = {
      .peer_name = peer_name, .is_private = call->is_encrypted() || call->is_local(), .authorization = authorization};
  Verdict verdict = access->Judge(call->access_memory(), credentials, {.index = method, .path = call->method()});
  call->SetIdentity(verdict.identity);
  if (!verdict.denial.has_value()) return std::nullopt;
  return AccessDenial{*verdict.denial, access->ErrorOf(verdict, call->method())};
}

}  // namespace normd::rpc

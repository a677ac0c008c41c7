#include "server/rpc/transport/access_check.h"

#include <memory>
#include <utility>

#include "kernels/base/strings.h"

namespace normd::rpc {

std::string PeerName(const Stream& stream) {
  if (const std::string& name = stream.PeerCertificateName(); !name.empty()) return name;
  const std::optional<uint32_t>& uid = stream.connection()->uid();
  return uid.has_value() ? Concat("uid:", *uid) : "anonymous";
}

std::optional<AccessDenial> CheckAccess(AccessControl* access, size_t method, Stream* stream) {
  if (access == nullptr) {
    stream->SetIdentity(std::make_shared<Identity>(Identity{PeerName(*stream), ""}));
    return std::nullopt;
  }
  const auto authorization = stream->Authorization();
  const auto peer_name = [stream] { return PeerName(*stream); };
  const Credentials credentials = {.peer_name = peer_name,
                                   .is_private = stream->is_encrypted() || stream->is_local(),
                                   .authorization = authorization};
  Verdict verdict = access->Judge(stream->access_memory(), credentials, {.index = method, .path = stream->method()});
  stream->SetIdentity(verdict.identity);
  if (!verdict.denial.has_value()) return std::nullopt;
  return AccessDenial{*verdict.denial, access->ErrorOf(verdict, stream->method())};
}

}  // namespace normd::rpc

#include "server/rpc/grpc/grpc_tls_peer.h"

#include <grpc/grpc_security.h>
#include <grpc/grpc_security_constants.h>

#include <memory>
#include <string>
#include <utility>

#include "server/security/certificate_names.h"

namespace normd::rpc {
namespace {

// The first value of a property; empty if there is none.
std::string FirstValue(const grpc_auth_context* context, const char* name) {
  grpc_auth_property_iterator properties = grpc_auth_context_find_properties_by_name(context, name);
  const grpc_auth_property* const first = grpc_auth_property_iterator_next(&properties);
  return first == nullptr ? "" : std::string(first->value, first->value_length);
}

// Here the handshake is over, so a certificate with too long a name cannot be refused: its holder has no name.
std::string CertificateName(const grpc_auth_context* context) {
  if (FirstValue(context, GRPC_X509_PEM_CERT_PROPERTY_NAME).empty()) return "";
  std::string name = IdentityName({.uri = FirstValue(context, GRPC_PEER_URI_PROPERTY_NAME),
                                   .dns = FirstValue(context, GRPC_PEER_DNS_PROPERTY_NAME),
                                   .common_name = FirstValue(context, GRPC_X509_CN_PROPERTY_NAME)});
  return IdentityNameProblem(name).empty() ? name : "";
}

net::TlsPeerPtr ReadPeer(const grpc_auth_context* context) {
  auto peer = std::make_shared<net::TlsPeer>();
  if (context == nullptr) return peer;
  peer->is_encrypted =
      FirstValue(context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME) == GRPC_SSL_TRANSPORT_SECURITY_TYPE;
  if (peer->is_encrypted) peer->certificate_name = CertificateName(context);
  return peer;
}

}  // namespace

net::TlsPeerPtr FindTlsPeer(grpc_call* call, TlsPeerMemory& memory) {
  // A reference of our own.
  std::shared_ptr<grpc_auth_context> context(grpc_call_auth_context(call), [](grpc_auth_context* owned) {
    if (owned != nullptr) grpc_auth_context_release(owned);
  });
  if (net::TlsPeerPtr peer = memory.Find(context.get()); peer != nullptr) return peer;
  net::TlsPeerPtr peer = ReadPeer(context.get());
  memory.Remember(std::move(context), peer);
  return peer;
}

}  // namespace normd::rpc

#include "tests/support/client_hello.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>

namespace normd {
namespace {

constexpr unsigned char kHttp2[] = {2, 'h', '2'};  // ALPN's list of one protocol

}  // namespace

std::string MakeClientHello() {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (context == nullptr) return "";
  const std::unique_ptr<SSL, void (*)(SSL*)> client(SSL_new(context.get()), SSL_free);
  BIO* const from_server = BIO_new(BIO_s_mem());
  BIO* const to_server = BIO_new(BIO_s_mem());
  if (client == nullptr || from_server == nullptr || to_server == nullptr) {
    BIO_free(from_server);
    BIO_free(to_server);
    return "";
  }
  SSL_set_bio(client.get(), from_server, to_server);  // owns both
  SSL_set_alpn_protos(client.get(), kHttp2, sizeof(kHttp2));
  SSL_set_connect_state(client.get());
  SSL_do_handshake(client.get());  // writes the hello, and then lacks the server's answer
  ERR_clear_error();
  char* text = nullptr;
  const auto size = BIO_get_mem_data(to_server, &text);
  return std::string(text, static_cast<size_t>(size));
}

}  // namespace normd

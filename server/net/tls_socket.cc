#include "server/net/tls_socket.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/strings.h"
#include "server/base/steady_time.h"
#include "server/security/certificate_names.h"

namespace normd::net {
namespace {

// RFC 8446, 5.1: the most that one record carries.
constexpr size_t kRecordBytes = 16384;

// The records that one Read looks at: small ones take a few hundred microseconds, and full ones are more than a
// connection reads in its turn.
constexpr int kRecordsPerRead = 256;
// Messages of TLS itself after the set-up: a client changes its keys once in many GiB, if ever.
constexpr double kMessageBurst = 32;
constexpr double kMessagesPerSecond = 1;
// Records with less than the head of an HTTP/2 frame, of which no client makes a habit: each costs a run of the cipher.
constexpr size_t kSmallRecordBytes = 9;
constexpr double kSmallRecordBurst = 10000;
constexpr double kSmallRecordsPerSecond = 2000;

long Control(BIO*, int command, long, void*) {  // NOLINT(google-runtime-int): OpenSSL's own type
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

std::string TextOf(const ASN1_STRING* text) {
  if (text == nullptr) return "";
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<size_t>(ASN1_STRING_length(text))};
}

// The first of the certificate's alternative names that has the type GEN_URI or GEN_DNS; empty if there is none.
std::string AlternativeName(const X509* certificate, int type) {
  const std::unique_ptr<GENERAL_NAMES, void (*)(GENERAL_NAMES*)> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == type) return TextOf(name->d.ia5);  // both types have their text there
  }
  return "";
}

std::string CommonName(const X509* certificate) {
  const X509_NAME* const subject = X509_get_subject_name(certificate);
  const int place = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (place < 0) return "";
  unsigned char* utf8 = nullptr;
  const int size = ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, place)));
  if (size < 0) return "";
  std::string name(reinterpret_cast<const char*>(utf8), static_cast<size_t>(size));
  OPENSSL_free(utf8);
  return name;
}

// The name as TlsPeer has it.
std::string CertificateName(const X509* certificate) {
  return IdentityName({.uri = AlternativeName(certificate, GEN_URI),
                       .dns = AlternativeName(certificate, GEN_DNS),
                       .common_name = CommonName(certificate)});
}

TlsPeerPtr ReadPeer(const SSL* ssl) {
  auto peer = std::make_shared<TlsPeer>();
  peer->is_encrypted = true;
  const X509* const certificate = SSL_get0_peer_certificate(ssl);
  if (certificate != nullptr) peer->certificate_name = CertificateName(certificate);
  return peer;
}

bool SpeaksHttp2(const SSL* ssl) {
  const unsigned char* chosen = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl, &chosen, &size);
  return std::string_view(reinterpret_cast<const char*>(chosen), size) == "h2";
}

// Why a handshake failed, as OpenSSL knows it; empty if the peer just went away.
std::string HandshakeError(const SSL* ssl) {
  if (const int64_t verdict = SSL_get_verify_result(ssl); verdict != X509_V_OK) {
    return Concat("the client's certificate: ", X509_verify_cert_error_string(verdict));
  }
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  return reason == nullptr ? "" : reason;
}

// The bytes of the next record: those of `parts` behind `skip`. A part that fills a record is taken where it lies; the
// others are copied together, because each record costs 22 bytes and a run of the cipher.
std::string_view NextRecord(absl::Span<const iovec> parts, size_t skip, std::array<char, kRecordBytes>& copy) {
  size_t filled = 0;
  for (const iovec& part : parts) {
    if (skip >= part.iov_len) {
      skip -= part.iov_len;
      continue;
    }
    const char* const data = static_cast<const char*>(part.iov_base) + skip;
    const size_t size = std::min(part.iov_len - skip, kRecordBytes - filled);
    skip = 0;
    if (filled == 0 && size == kRecordBytes) return {data, size};
    std::memcpy(copy.data() + filled, data, size);
    filled += size;
    if (filled == kRecordBytes) break;
  }
  return {copy.data(), filled};
}

}  // namespace

// OpenSSL's own BIO of a socket would raise SIGPIPE when the peer is gone.
int TlsSocket::SendBytes(BIO* bio, const char* data, size_t size, size_t* sent) {
  const ssize_t result = send(static_cast<Socket*>(BIO_get_data(bio))->fd, data, size, MSG_NOSIGNAL);
  BIO_clear_retry_flags(bio);
  if (result < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  *sent = result > 0 ? static_cast<size_t>(result) : 0;
  return result > 0 ? 1 : 0;
}

int TlsSocket::ReceiveBytes(BIO* bio, char* data, size_t size, size_t* received) {
  auto* const socket = static_cast<Socket*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (socket->given < socket->received.size()) {
    *received = socket->received.copy(data, size, socket->given);
    socket->given += *received;
    if (socket->given == socket->received.size()) std::string().swap(socket->received);
    return 1;
  }
  const ssize_t result = recv(socket->fd, data, size, 0);
  socket->is_drained = result < 0 && (errno == EAGAIN || errno == EINTR);
  if (socket->is_drained) BIO_set_retry_read(bio);
  *received = result > 0 ? static_cast<size_t>(result) : 0;
  return result > 0 ? 1 : 0;
}

BIO* TlsSocket::MakeBio(Socket* socket) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "normd socket");
    BIO_meth_set_write_ex(made, SendBytes);
    BIO_meth_set_read_ex(made, ReceiveBytes);
    BIO_meth_set_ctrl(made, Control);
    return made;
  }();
  BIO* const bio = BIO_new(method);
  BIO_set_data(bio, socket);
  BIO_set_init(bio, 1);
  return bio;
}

TlsSocket::TlsSocket(UniqueFd fd, const std::shared_ptr<SSL_CTX>& context, std::string received)
    : fd_(std::move(fd)),
      socket_{.fd = fd_.get(), .received = std::move(received)},
      ssl_(context == nullptr ? nullptr : SSL_new(context.get())),
      messages_(kMessageBurst, kMessagesPerSecond),
      small_records_(kSmallRecordBurst, kSmallRecordsPerSecond) {
  if (ssl_ == nullptr) return;
  BIO* const bio = MakeBio(&socket_);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  SSL_set_accept_state(ssl_.get());
}

void TlsSocket::OnMessage(int is_sent, int /*version*/, int content_type, const void* /*bytes*/, size_t /*size*/,
                          SSL* ssl, void* /*unused*/) {
  auto* const self = static_cast<TlsSocket*>(SSL_get_app_data(ssl));
  if (is_sent != 0 || self == nullptr || !self->is_set_up_) return;
  if (content_type != SSL3_RT_HANDSHAKE && content_type != SSL3_RT_ALERT) return;
  if (self->messages_.Allow(SteadyNow())) return;
  self->flooded_ = true;
  // SSL_read goes on while it has read ahead, whatever its mode; so that it stops, the peer counts as having said its
  // last.
  SSL_set_shutdown(ssl, SSL_RECEIVED_SHUTDOWN);
}

void TlsSocket::NoteRecord(size_t bytes) {
  const bool goes_on = in_record_;
  in_record_ = SSL_pending(ssl_.get()) > 0;
  if (goes_on || in_record_ || bytes >= kSmallRecordBytes) return;
  if (!small_records_.Allow(SteadyNow())) flooded_ = true;
}

TlsSocket::~TlsSocket() = default;

IoState TlsSocket::StateOf(int result) {
  const int error = SSL_get_error(ssl_.get(), result);
  wants_to_write_ = error == SSL_ERROR_WANT_WRITE;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return IoState::kBlocked;
  return error == SSL_ERROR_NONE ? IoState::kOk : IoState::kEnded;
}

IoState TlsSocket::SetUp() {
  if (ssl_ == nullptr) return IoState::kEnded;
  ERR_clear_error();
  const IoState state = StateOf(SSL_do_handshake(ssl_.get()));
  if (state == IoState::kEnded) failure_ = HandshakeError(ssl_.get());
  if (state != IoState::kOk) return state;
  if (!SpeaksHttp2(ssl_.get())) {
    failure_ = "the client does not offer HTTP/2 (ALPN h2)";
    return IoState::kEnded;
  }
  peer_ = ReadPeer(ssl_.get());
  failure_ = IdentityNameProblem(peer_->certificate_name);
  if (!failure_.empty()) return IoState::kEnded;
  is_set_up_ = true;
  return IoState::kOk;
}

IoResult TlsSocket::Read(absl::Span<const iovec> parts) {
  size_t total = 0;
  size_t part = 0;
  size_t filled = 0;  // of that part
  ERR_clear_error();
  for (int records = 0; records < kRecordsPerRead && part < parts.size(); ++records) {
    size_t got = 0;
    const int result =
        SSL_read_ex(ssl_.get(), static_cast<char*>(parts[part].iov_base) + filled, parts[part].iov_len - filled, &got);
    if (flooded_) return {.state = IoState::kFlooded};
    if (result != 1) {
      const IoState state = StateOf(result);
      // A record without data, behind which others may have come.
      if (state == IoState::kBlocked && !wants_to_write_ && !socket_.is_drained) continue;
      // What was read before an error counts; the error comes again.
      if (total > 0) break;
      return {.state = state};
    }
    NoteRecord(got);
    total += got;
    filled += got;
    if (filled < parts[part].iov_len) continue;
    ++part;
    filled = 0;
  }
  return {.bytes = total};
}

IoResult TlsSocket::Write(absl::Span<const iovec> parts) {
  std::array<char, kRecordBytes> copy;
  size_t total = 0;
  ERR_clear_error();
  while (true) {
    const std::string_view record = NextRecord(parts, total, copy);
    if (record.empty()) return {.bytes = total};
    size_t sent = 0;
    const int result = SSL_write_ex(ssl_.get(), record.data(), record.size(), &sent);
    if (result != 1 && total > 0) return {.bytes = total};
    if (result != 1) return {.state = StateOf(result)};
    total += sent;
  }
}

void TlsSocket::EndWriting() {
  ERR_clear_error();
  // Sends close_notify, by which the peer knows this end from one that somebody on the way made (RFC 8446, 6.1).
  SSL_shutdown(ssl_.get());
  shutdown(fd_.get(), SHUT_WR);
}

}  // namespace normd::net

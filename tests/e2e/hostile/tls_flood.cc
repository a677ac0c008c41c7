// A TLS client that finishes its handshake and then sends records that carry little or nothing, as fast as they are
// taken:
//   tls_flood PORT keyupdate|bytes SECONDS
// keyupdate: KeyUpdate messages that ask for one of the server in return. bytes: one byte of HTTP/2 a record, which
// make frames of an unknown type. Records are made in memory, a heap at a time, so that making them does not slow the
// sending. Exits with 0 when the time is over or the server has ended the connection, and says which.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRecordsInHeap = 4096;
// What an endpoint sends before its first call: the preface, SETTINGS, and the acknowledgement of the server's.
constexpr std::string_view kHello{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0",
                                  24 + 9 + 9};
// The head of a frame of type 0xee with 1 MiB.
constexpr std::string_view kFrameHead{"\x10\0\0\xee\0\0\0\0\0", 9};
constexpr size_t kFrameBytes = kFrameHead.size() + (1 << 20);

enum class Outcome { kSent, kTimeIsOver, kEndedByServer };

struct Client {
  int fd = -1;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl{nullptr, SSL_free};
  BIO* received = nullptr;  // of `ssl`
  BIO* made = nullptr;      // of `ssl`
};

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return -1;
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

// Reads what is there. False: the server has ended the connection.
bool Receive(Client& client, bool keeps) {
  char bytes[16384];
  while (true) {
    const ssize_t size = recv(client.fd, bytes, sizeof bytes, 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) return false;
    if (keeps) BIO_write(client.received, bytes, static_cast<int>(size));
  }
}

Outcome SendMade(Client& client, Clock::time_point deadline, bool keeps_replies, size_t& sent) {
  char* bytes = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(client.made, &bytes));
  size_t done = 0;
  Outcome outcome = Outcome::kSent;
  while (done < size && outcome == Outcome::kSent) {
    const ssize_t taken = send(client.fd, bytes + done, size - done, MSG_NOSIGNAL);
    if (taken > 0) done += static_cast<size_t>(taken);
    if (taken < 0 && errno != EAGAIN) outcome = Outcome::kEndedByServer;
    if (taken < 0 && errno == EAGAIN) {
      pollfd event{client.fd, POLLIN | POLLOUT, 0};
      poll(&event, 1, 20);
    }
    if (!Receive(client, keeps_replies)) outcome = Outcome::kEndedByServer;
    if (Clock::now() >= deadline && outcome == Outcome::kSent && done < size) outcome = Outcome::kTimeIsOver;
  }
  sent += done;
  BIO_reset(client.made);
  return outcome;
}

bool Handshake(Client& client, Clock::time_point deadline) {
  SSL_CTX_set_alpn_protos(client.context.get(), reinterpret_cast<const unsigned char*>("\2h2"), 3);
  client.ssl.reset(SSL_new(client.context.get()));
  client.received = BIO_new(BIO_s_mem());
  client.made = BIO_new(BIO_s_mem());
  SSL_set_bio(client.ssl.get(), client.received, client.made);
  SSL_set_connect_state(client.ssl.get());
  size_t sent = 0;
  while (Clock::now() < deadline) {
    const bool is_done = SSL_do_handshake(client.ssl.get()) == 1;
    if (SendMade(client, deadline, true, sent) != Outcome::kSent) return false;
    if (is_done) return SSL_write(client.ssl.get(), kHello.data(), static_cast<int>(kHello.size())) > 0;
    pollfd event{client.fd, POLLIN, 0};
    poll(&event, 1, 20);
    if (!Receive(client, true)) return false;
  }
  return false;
}

bool MakeKeyUpdate(SSL* ssl) {
  return SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(ssl) == 1;
}

bool MakeRecordOfOneByte(SSL* ssl, size_t& at) {
  const char byte = at < kFrameHead.size() ? kFrameHead[at] : '\0';
  at = (at + 1) % kFrameBytes;
  return SSL_write(ssl, &byte, 1) == 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view kind = argc == 4 ? argv[2] : "";
  if (kind != "keyupdate" && kind != "bytes") {
    std::fprintf(stderr, "usage: tls_flood PORT keyupdate|bytes SECONDS\n");
    return 2;
  }
  const auto begin = Clock::now();
  Client client;
  client.fd = Connect(std::atoi(argv[1]));
  if (client.fd < 0 || !Handshake(client, begin + std::chrono::seconds(30))) {
    std::fprintf(stderr, "tls_flood: no handshake with port %s\n", argv[1]);
    return 1;
  }
  const auto flood_begin = Clock::now();
  const auto deadline = flood_begin + std::chrono::milliseconds(static_cast<int64_t>(std::atof(argv[3]) * 1e3));
  size_t sent = 0;
  size_t records = 0;
  size_t at = 0;
  Outcome outcome = Outcome::kSent;
  while (outcome == Outcome::kSent && Clock::now() < deadline) {
    for (int i = 0; i < kRecordsInHeap; ++i, ++records) {
      if (!(kind == "bytes" ? MakeRecordOfOneByte(client.ssl.get(), at) : MakeKeyUpdate(client.ssl.get()))) break;
    }
    outcome = SendMade(client, deadline, false, sent);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - flood_begin).count();
  std::printf("%zu records, %zu bytes in %.1f s%s\n", records, sent, seconds,
              outcome == Outcome::kEndedByServer ? ", ended by the server" : "");
  close(client.fd);
  return 0;
}

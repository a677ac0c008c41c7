// The bytes of one connection as its peer sends and gets them, plain or through TLS.
// In the path: between a socket and HTTP/2. Two kinds ship: PlainSocket and TlsSocket.
// Ownership: owns the descriptor. Threads: the loop's thread only.
#ifndef NORMD_SERVER_NET_BYTE_STREAM_H_
#define NORMD_SERVER_NET_BYTE_STREAM_H_

#include <sys/uio.h>

#include <cstddef>
#include <memory>

#include "absl/types/span.h"
#include "server/net/tls_peer.h"

namespace normd::net {

enum class IoState : uint8_t {
  kOk,       // bytes were moved, or a set-up is complete
  kBlocked,  // the socket must become ready first
  kEnded,    // the peer is gone, or broke the rules of TLS
  kFlooded,  // the peer makes TLS work for nothing
};

struct IoResult {
  IoState state = IoState::kOk;
  size_t bytes = 0;  // of kOk; may be fewer than there was room for
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  virtual int fd() const = 0;
  // Goes on with the set-up that comes before the first byte. Called until it is no longer blocked.
  virtual IoState SetUp() = 0;
  // Why the set-up ended, as a clause for the log; empty if it did not, or the peer just went away.
  virtual std::string failure() const { return ""; }
  // What is known of the peer; never null. REQUIRES: the set-up is complete.
  virtual TlsPeerPtr peer() const = 0;
  // Reads into `parts`, one after the other.
  virtual IoResult Read(absl::Span<const iovec> parts) = 0;
  // Writes the first bytes of `parts`. After kBlocked, the next Write must begin with the same bytes.
  virtual IoResult Write(absl::Span<const iovec> parts) = 0;
  // Tells the peer that nothing more comes, and ends this direction of the socket; Read goes on. Does not block: bytes
  // that the socket does not accept at once are left out. REQUIRES: the set-up is complete, and all was written.
  virtual void EndWriting() = 0;
  // Whether bytes were received that Read has not given yet, so that the socket need not become readable for them.
  virtual bool HasReceived() const = 0;
  // Whether the set-up waits for the socket to become writable.
  virtual bool WantsToWrite() const = 0;
};

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_BYTE_STREAM_H_

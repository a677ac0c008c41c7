// The protocol by which a client registers shared memory by file descriptor: fixed structs over a Unix socket of type
// SOCK_SEQPACKET, at the path of the gRPC socket plus kShmSocketSuffix. One packet is one message, so there are no
// partial messages. Each request is answered by one reply, in order. Regions belong to the connection and end with it.
// Both ends are on one machine: numbers are in its byte order. Strings are padded with zero bytes.
// In the path: only registration uses it, never a call; server and clients share it. Standard library only. Plain
// values and pure functions.
#ifndef NORMD_PROTO_WIRE_SHM_REGISTRATION_H_
#define NORMD_PROTO_WIRE_SHM_REGISTRATION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace normd::wire {

inline constexpr std::string_view kShmSocketSuffix = ".shm";
inline constexpr uint32_t kShmMagic = 0x4d53444e;  // "NDSM" in memory, on a little-endian machine
inline constexpr uint16_t kShmVersion = 1;

enum ShmOperation : uint16_t {
  // Maps the first size_bytes of the object whose descriptor comes with the packet: exactly one, as SCM_RIGHTS.
  // `region` is all zero. The reply has the name of the region.
  kShmRegister = 1,
  // Gives up `region` of this connection; requests that use it finish first. No descriptor comes with the packet, and
  // size_bytes is 0.
  kShmUnregister = 2,
};

struct ShmRequest {
  uint32_t magic = kShmMagic;
  uint16_t version = kShmVersion;
  uint16_t operation = 0;  // a ShmOperation
  uint64_t size_bytes = 0;
  char region[48] = {};
};

struct ShmReply {
  uint32_t magic = kShmMagic;
  // The server's version. A request of another version is refused with INVALID_ARGUMENT.
  uint16_t version = kShmVersion;
  uint16_t operation = 0;  // that of the request
  int32_t code = 0;        // google.rpc.Code; 0: OK
  uint32_t reserved = 0;
  char region[48] = {};    // after a successful kShmRegister: the name for SharedRange.region
  char message[256] = {};  // the error in words, truncated to fit
};

static_assert(sizeof(ShmRequest) == 64 && std::is_trivially_copyable_v<ShmRequest>);
static_assert(sizeof(ShmReply) == 320 && std::is_trivially_copyable_v<ShmReply>);

// PutShmText writes `text` to a padded field, truncated to leave at least one zero byte. GetShmText reads such a field.
template <size_t N>
void PutShmText(std::string_view text, char (&field)[N]) {
  std::memset(field, 0, N);
  std::memcpy(field, text.data(), std::min(text.size(), N - 1));
}

template <size_t N>
std::string GetShmText(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_SHM_REGISTRATION_H_

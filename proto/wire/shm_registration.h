// How a client registers shared memory by file descriptor: fixed structs over a Unix socket of type SOCK_SEQPACKET at
// the path of the gRPC socket plus kShmSocketSuffix. One packet is one message, so there are no partial ones. Each
// request is answered by one reply, in order. Regions belong to the connection and go when it closes.
// Both ends are on one machine: numbers are in its byte order, strings are padded with zero bytes.
// Shared by server and clients; standard library only.
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
  // `region` is all zero. The reply names the region.
  kShmRegister = 1,
  // Gives up `region` of this connection; requests that use it finish first. No descriptor, size_bytes is 0.
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
  uint16_t version = kShmVersion;  // the server's: a request of another one is refused with INVALID_ARGUMENT
  uint16_t operation = 0;          // of the request that this answers
  int32_t code = 0;                // google.rpc.Code; 0: done
  uint32_t reserved = 0;
  char region[48] = {};    // of kShmRegister that was done: the name for SharedRange.region
  char message[256] = {};  // why not, in words; cut off where it is longer
};

static_assert(sizeof(ShmRequest) == 64 && std::is_trivially_copyable_v<ShmRequest>);
static_assert(sizeof(ShmReply) == 320 && std::is_trivially_copyable_v<ShmReply>);

// `text` into a padded field, cut off to leave at least one zero byte; and back.
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

// Any bytes as what a peer of the native transport sends, from the preface on. The first byte of the input says in what
// pieces they come. Whatever the bytes are, the connection ends with its socket and leaves no call behind.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/native_peer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = size_t{1} << (data[0] % 16);
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  // A piece costs a turn of the loop.
  const size_t most = std::max(piece, bytes.size() / 32 + 1);
  normd::rpc::http2::NativePeer peer;
  while (!bytes.empty()) {
    const std::string_view next = bytes.substr(0, most);
    peer.Send(next);
    peer.Settle();
    peer.Receive();
    bytes.remove_prefix(next.size());
  }
  return 0;
}

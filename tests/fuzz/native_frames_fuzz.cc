// A sequence of well-formed HTTP/2 frames as what a peer of the native transport sends after a valid preface: the input
// is a list of steps of four bytes, each a kind, a stream, and two numbers. So the fuzzer gets behind the checks of
// frames, to what the connection and its streams make of legal frames in any order.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/native_peer.h"

namespace {

using normd::rpc::http2::NativePeer;

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kData = 0, kHeaders = 1, kPriority = 2, kReset = 3, kSettings = 4, kPing = 6, kGoAway = 7,
                  kWindowUpdate = 8, kContinuation = 9, kPriorityUpdate = 16;
constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4, kPadded = 8;
constexpr size_t kMaxSteps = 64;

std::string BigEndian(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFF);
  return text;
}

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame = BigEndian(static_cast<uint32_t>(payload.size()) << 8).substr(0, 3);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  frame += BigEndian(stream);
  return frame.append(payload);
}

// A header block of HPACK literals that are not indexed.
void AddLiteral(std::string_view name, std::string_view value, std::string* block) {
  *block += '\0';
  for (const std::string_view text : {name, value}) {
    *block += static_cast<char>(text.size());  // REQUIRES: under 127
    block->append(text);
  }
}

struct Step {
  uint8_t kind, stream, a, b;
};

std::string HeaderBlock(const Step& step) {
  static constexpr std::string_view kPaths[] = {"/f/E", "/f/H", "/f/R", "/f/F", "/f/C", "/f/I", "/", "f"};
  static constexpr std::string_view kTypes[] = {"application/grpc", "application/grpc+proto", "text/html", ""};
  static constexpr std::string_view kTimeouts[] = {"1m", "1n", "99999999H", "-1S", "1", "", "20m", "0u"};
  std::string block;
  AddLiteral(":method", (step.b & 1) == 0 ? "POST" : "GET", &block);
  AddLiteral(":scheme", "http", &block);
  AddLiteral(":path", kPaths[step.a % 8], &block);
  if ((step.b & 2) == 0) AddLiteral(":authority", "fuzz", &block);
  AddLiteral("content-type", kTypes[step.b >> 2 & 3], &block);
  if ((step.b & 16) != 0) AddLiteral("grpc-timeout", kTimeouts[step.a >> 3 & 7], &block);
  if ((step.b & 32) != 0) AddLiteral("x-bin", (step.a & 64) == 0 ? "AAEC" : "%%%", &block);
  if ((step.b & 64) != 0) AddLiteral("grpc-encoding", (step.a & 64) == 0 ? "identity" : "gzip", &block);
  return block;
}

// A message whose prefix says `size`, and the first `sent` bytes of it.
std::string Message(uint8_t compressed, uint32_t size, size_t sent) {
  return std::string(1, static_cast<char>(compressed)) + BigEndian(size) + std::string(sent, 'm');
}

uint32_t SizeOf(uint8_t code) { return code < 128 ? code : uint32_t{1} << (code % 24); }

std::string FramesOf(const Step& step) {
  const uint32_t stream = 2 * (step.stream & 15) + 1;
  const uint8_t end = (step.stream & 16) != 0 ? kEndStream : 0;
  const uint16_t both = static_cast<uint16_t>(step.a << 8 | step.b);
  switch (step.kind % 16) {
    case 0:
      return Frame(kHeaders, kEndHeaders | end, stream, HeaderBlock(step));
    case 1: {  // in two frames
      const std::string block = HeaderBlock(step);
      const size_t cut = step.stream * block.size() / 256;
      return Frame(kHeaders, end, stream, block.substr(0, cut)) +
             Frame(kContinuation, kEndHeaders, stream, block.substr(cut));
    }
    case 2:  // one whole message
      return Frame(kData, end, stream, Message(0, SizeOf(step.a) & 0x3FFF, SizeOf(step.a) & 0x3FFF));
    case 3:  // the beginning of a message
      return Frame(kData, end, stream, Message(step.b & 1, SizeOf(step.a), step.b));
    case 4:
      return Frame(kData, end, stream, std::string(SizeOf(step.a) & 0x3FFF, static_cast<char>(step.b & 1)));
    case 5: {  // padding
      const std::string message = Message(0, step.a, step.a);
      return Frame(kData, end | kPadded, stream, static_cast<char>(step.b) + message + std::string(step.b, '\0'));
    }
    case 6:
      return Frame(kReset, 0, stream, BigEndian(step.a));
    case 7:
      return Frame(kSettings, 0, 0, BigEndian(uint32_t{step.stream} << 16).substr(0, 2) + BigEndian(SizeOf(step.a)));
    case 8:
      return Frame(kPing, step.a & kAck, 0, "12345678");
    case 9:
      return Frame(kGoAway, 0, 0, BigEndian(stream) + BigEndian(step.a));
    case 10:
      return Frame(kWindowUpdate, 0, (step.stream & 32) != 0 ? stream : 0, BigEndian(uint32_t{1} << (step.a % 31)));
    case 11:
      return Frame(kPriority, 0, stream, BigEndian(step.a) + static_cast<char>(step.b));
    case 12:
      return Frame(kPriorityUpdate, 0, 0, BigEndian(stream) + "u=" + static_cast<char>('0' + step.a % 10));
    case 13:  // a kind that nobody knows
      return Frame(static_cast<uint8_t>(0x20 + step.a), step.b, stream, std::string(step.b, 'x'));
    case 14: {  // trailers of the request
      std::string block;
      AddLiteral("x-trailer", "t", &block);
      return Frame(kHeaders, kEndHeaders | kEndStream, stream, block);
    }
    default: {  // many small frames
      std::string frames;
      for (int i = 0; i < both % 300; ++i)
        frames += Frame(step.b % 2 == 0 ? kPing : kData, 0, step.b % 2 == 0 ? 0 : stream, "12345678");
      return frames;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  NativePeer peer;
  peer.Send(std::string(kPreface) + Frame(kSettings, 0, 0, ""));
  for (size_t i = 0; i + 4 <= size && i < 4 * kMaxSteps; i += 4) {
    const Step step = {data[i], data[i + 1], data[i + 2], data[i + 3]};
    // The high bits of the kind say what happens before the frames: nothing, the peer waits, it reads, too, or the
    // server drains.
    if (step.kind >= 64) peer.Settle();
    if (step.kind >= 128) peer.Receive();
    if (step.kind >= 248) peer.Drain();
    peer.Send(FramesOf(step));
  }
  peer.Settle();
  peer.Receive();
  return 0;
}

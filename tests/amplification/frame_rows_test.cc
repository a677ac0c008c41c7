// The table's rows of HTTP/2 frames: each kind of frame, in each state that a connection and a stream may be in.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/amplification/row_fixture.h"
#include "tests/amplification/wire.h"

namespace normd {
namespace {

using namespace wire_bytes;  // NOLINT(google-build-using-namespace): the words of this table

constexpr size_t kTimes = 1000;

// What makes the state of stream 1.
struct State {
  std::string name;
  std::string before;
};

std::vector<State> States() {
  const auto call = [](const std::string& path, uint8_t flags, const std::string& method = "POST") {
    return Preface() + Frame(kHeaders, kEndHeaders | flags, 1, RequestFields(path, method));
  };
  return {
      {"before the preface", ""},
      {"before SETTINGS", std::string(rpc::http2::kMagic)},
      {"idle stream", Preface()},
      {"open", call("/f/I", 0)},
      {"open, echoing", call("/f/E", 0)},
      {"half-closed", call("/f/I", kEndStream)},
      {"answered", call("/f/F", 0)},
      {"refused, resting", call("/f/I", 0, "GET")},
      {"closed", call("/f/F", kEndStream)},
      {"within a header block", Preface() + Frame(kHeaders, 0, 1, RequestFields("/f/I"))},
  };
}

// One frame of each kind, for stream 1 where it is for a stream.
std::vector<std::pair<std::string, std::string>> Frames() {
  const auto setting = [](uint16_t id, uint32_t value) {
    return BigEndian(uint32_t{id} << 16).substr(0, 2) + BigEndian(value);
  };
  return {
      {"DATA, empty", Frame(kData, 0, 1, "")},
      {"DATA, a byte", Frame(kData, 0, 1, std::string(1, '\0'))},
      {"DATA, an empty message", Frame(kData, 0, 1, Message(""))},
      {"DATA, 16 KiB", Frame(kData, 0, 1, Message(std::string((16 << 10) - 5, 'm')))},
      {"DATA, only padding", Frame(kData, kPadded, 1, std::string(1, '\xFF') + std::string(255, '\0'))},
      {"HEADERS, the same stream", Frame(kHeaders, kEndHeaders | kEndStream, 1, RequestFields("/f/F"))},
      {"HEADERS, empty", Frame(kHeaders, kEndHeaders, 1, "")},
      {"PRIORITY", Frame(kPriority, 0, 1, BigEndian(0) + "w")},
      {"RST_STREAM", Frame(kReset, 0, 1, BigEndian(8))},
      {"SETTINGS, empty", Frame(kSettings, 0, 0, "")},
      {"SETTINGS, windows", Frame(kSettings, 0, 0, setting(4, 70'000))},
      {"SETTINGS, 32 of them", Frame(kSettings, 0, 0, Repeated(setting(4, 1), 32))},
      {"SETTINGS, table sizes", Frame(kSettings, 0, 0, setting(1, 0) + setting(1, 65'536))},
      {"SETTINGS, ACK", Frame(kSettings, kAck, 0, "")},
      {"PUSH_PROMISE", Frame(kPushPromise, kEndHeaders, 1, BigEndian(2) + RequestFields("/f/F"))},
      {"PING", Frame(kPing, 0, 0, "12345678")},
      {"PING, ACK", Frame(kPing, kAck, 0, "12345678")},
      {"GOAWAY", Frame(kGoAway, 0, 0, BigEndian(0) + BigEndian(0))},
      {"GOAWAY, with text", Frame(kGoAway, 0, 0, BigEndian(0) + BigEndian(0) + std::string(8 << 10, 'g'))},
      {"WINDOW_UPDATE, connection", Frame(kWindowUpdate, 0, 0, BigEndian(1))},
      {"WINDOW_UPDATE, stream", Frame(kWindowUpdate, 0, 1, BigEndian(1))},
      {"CONTINUATION", Frame(kContinuation, 0, 1, "")},
      {"PRIORITY_UPDATE", Frame(kPriorityUpdate, 0, 0, BigEndian(1) + "u=1")},
      {"unknown, empty", Frame(kUnknown, 0, 1, "")},
      {"unknown, 16 KiB", Frame(kUnknown, 0, 0, std::string(16 << 10, 'u'))},
  };
}

TEST(AmplificationTable, FramesOfEveryKindInEveryStateCostWhatTheyMay) {
  for (const State& state : States()) {
    for (const auto& [name, frame] : Frames()) {
      const std::string bytes = Repeated(frame, frame.size() < 1000 ? kTimes : kTimes / 10);
      ExpectWithinBound({state.name + ": " + name, state.before, bytes, CountUnits(bytes)});
    }
  }
}

TEST(AmplificationTable, BytesThatAreNoHttp2CostWhatTheyMay) {
  for (const size_t size : {size_t{1}, size_t{1 << 20}}) {
    ExpectWithinBound({"no HTTP/2", "", std::string(size, 'x'), {.bytes = static_cast<double>(size)}});
    ExpectWithinBound({"TLS records to plain text",
                       "",
                       Repeated(std::string("\x17\x03\x03\0\1x", 6), size),
                       {.bytes = 6.0 * static_cast<double>(size)}});
  }
}

// Streams that open one after the other, on the same connection.
std::string Streams(size_t count, const std::function<std::string(uint32_t)>& frames_of) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += frames_of(static_cast<uint32_t>(2 * i + 1));
  return bytes;
}

TEST(AmplificationTable, StreamsCostWhatTheyMay) {
  const auto expect = [](const std::string& name, const std::function<std::string(uint32_t)>& frames_of) {
    const std::string bytes = Streams(kTimes, frames_of);
    ExpectWithinBound({"streams: " + name, Preface(), bytes, CountUnits(bytes)});
  };
  const auto headers = [](uint32_t stream, uint8_t flags, const std::string& block) {
    return Frame(kHeaders, kEndHeaders | flags, stream, block);
  };
  expect("answered at once", [&](uint32_t id) { return headers(id, kEndStream, RequestFields("/f/F")); });
  expect("answered before their end", [&](uint32_t id) { return headers(id, 0, RequestFields("/f/F")); });
  expect("with an answer of 4 KB", [&](uint32_t id) { return headers(id, kEndStream, RequestFields("/f/R")); });
  expect("cancelled by the server", [&](uint32_t id) { return headers(id, 0, RequestFields("/f/C")); });
  expect("more than are allowed", [&](uint32_t id) { return headers(id, 0, RequestFields("/f/I")); });
  expect("not of gRPC", [&](uint32_t id) { return headers(id, kEndStream, RequestFields("/f/F", "GET")); });
  expect("not of HTTP/2", [&](uint32_t id) { return headers(id, kEndStream, Literal("Upper", "x")); });
  expect("without fields", [&](uint32_t id) { return headers(id, kEndStream, ""); });
  expect("reset at once",
         [&](uint32_t id) { return headers(id, 0, RequestFields("/f/I")) + Frame(kReset, 0, id, BigEndian(8)); });
  expect("reset by a wrong window", [&](uint32_t id) {
    return headers(id, 0, RequestFields("/f/I")) + Frame(kWindowUpdate, 0, id, BigEndian(0));
  });
  expect("announced and not sent", [&](uint32_t id) {
    return headers(id, 0, RequestFields("/f/E")) + Frame(kData, 0, id, std::string(1, '\0') + BigEndian(60'000)) +
           Frame(kReset, 0, id, BigEndian(8));
  });
}

TEST(AmplificationTable, MessagesCostWhatTheyMay) {
  const auto expect = [](const std::string& name, const std::string& path, const std::string& data,
                         size_t frame_bytes) {
    std::string bytes;
    for (size_t i = 0; i < data.size(); i += frame_bytes) bytes += Frame(kData, 0, 1, data.substr(i, frame_bytes));
    ExpectWithinBound({"messages: " + name, Preface() + Frame(kHeaders, kEndHeaders, 1, RequestFields(path)), bytes,
                       CountUnits(bytes)});
  };
  for (const std::string path : {"/f/E", "/f/H", "/f/I"}) {
    expect("empty, together, " + path, path, Repeated(Message(""), 12'000), 16'000);
    expect("empty, a frame each, " + path, path, Repeated(Message(""), 2'000), 5);
    expect("of 60 KB, a byte a frame, " + path, path, Message(std::string(6'000, 'm')), 1);
    expect("of 60 KB, " + path, path, Message(std::string(60'000, 'm')), 16'000);
    expect("announced, of 4 GiB, " + path, path, std::string(1, '\0') + BigEndian(0xFFFFFFFF), 5);
    expect("compressed, " + path, path, Repeated(std::string(1, '\1') + BigEndian(0), 2'000), 16'000);
  }
}

}  // namespace
}  // namespace normd

// A search for bytes that cost the server much: what a peer of the native transport sends, and the most that it may
// cost, which is the bound of the table in tests/amplification/bounds.h. The fuzzer fails above it. How near an input
// comes to the bound counts as coverage, so that the search goes on from what costs most.
// The first byte of an input is 0 for bytes as they are, behind a valid preface; otherwise steps of six bytes follow,
// each a kind and five numbers: they add fields to a block of headers, and send frames, all of them legal. So a few
// bytes make a mebibyte of repetitions, which is what expensive input looks like; what counts is the bytes on the wire.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/amplification/bounds.h"
#include "tests/amplification/cost_peer.h"
#include "tests/amplification/wire.h"

namespace {

using namespace normd::wire_bytes;  // NOLINT(google-build-using-namespace): the words of the table
using normd::Bound;
using normd::Cost;
using normd::Units;

constexpr size_t kMaxSteps = 48;
constexpr size_t kStepBytes = 6;
constexpr uint8_t kKinds = 10;
constexpr size_t kMaxBytes = 512 << 10;       // on the wire, of one input
constexpr size_t kMaxBlockBytes = 256 << 10;  // of one block of headers
// Our own code is slower with the sanitizer, and without much optimisation.
constexpr double kSanitizedFactor = 8;
constexpr int kMostTries = 4;

// ---- How dear an input was, as coverage ----

constexpr size_t kBuckets = 64;
// libFuzzer clears these before each input, and takes each that is set for a feature.
__attribute__((section("__libfuzzer_extra_counters"), used)) uint8_t dearness[6 * kBuckets];

// Steps of a half of a power of two, from 2^-16 of the unit on.
void NoteDearness(size_t which, double value) {
  if (value <= 0) return;
  const double bucket = std::clamp(2 * (std::log2(value) + 16), 0.0, static_cast<double>(kBuckets - 1));
  dearness[which * kBuckets + static_cast<size_t>(bucket)] = 1;
}

void NoteDearness(const Cost& cost, const Cost& bound, double bytes) {
  NoteDearness(0, cost.allocated_bytes / bound.allocated_bytes);
  NoteDearness(1, cost.peak_bytes / bound.peak_bytes);
  NoteDearness(2, cost.shown_bytes / bound.shown_bytes);
  // Coarser, because no two measurements of time are the same.
  NoteDearness(3, std::exp2(std::floor(std::log2(std::max(cost.cpu_ns, 1.0) / bound.cpu_ns))));
  NoteDearness(4, cost.allocated_bytes / bytes / 1024);
  NoteDearness(5, cost.shown_bytes / bytes / 1024);
}

// ---- The verdict ----

void Judge(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  const Units units = CountUnits(all);
  Cost bound = Bound(units);
  bound.cpu_ns *= kSanitizedFactor;
  Cost cost = normd::CostOfPeer("", pieces);
  NoteDearness(cost, bound, units.bytes);
  for (int i = 1; i < kMostTries && WorstShare(cost, bound).value > 1; ++i) {
    cost = Least(cost, normd::CostOfPeer("", pieces));
  }
  const normd::Share worst = WorstShare(cost, bound);
  if (worst.value <= 1) return;
  std::fprintf(stderr,
               "%.0f bytes cost %.1f times their bound of %s: %.1f ms of CPU time, %.0f bytes allocated, %.0f held, "
               "%.0f of fields decoded\n",
               units.bytes, worst.value, worst.of, cost.cpu_ns / 1e6, cost.allocated_bytes, cost.peak_bytes,
               cost.shown_bytes);
  std::abort();
}

// ---- Steps ----

struct Step {
  uint8_t kind, stream, a, b, c, d;
};

// A number up to 127, or from 128 on a power of two.
constexpr uint8_t kPowers = 21;
size_t SizeOf(uint8_t code) { return code < 128 ? code : size_t{1} << (code % kPowers); }

class Traffic {
 public:
  void Take(const Step& step) {
    const uint32_t stream = 2 * (step.stream & 15) + 1;
    const uint8_t end = (step.stream & 16) != 0 ? kEndStream : 0;
    switch (step.kind % kKinds) {
      case 0:
        return AddField(step);
      case 1:
        return AddToBlock(Indexed((step.a & 1) != 0 ? kNewestIndex + step.b : 1 + step.b % 61), SizeOf(step.c));
      case 2:
        return AddToBlock(TableSize(SizeOf(step.a)), 1);
      case 3:
        return AddToBlock(HuffmanLiteral("x", std::string(SizeOf(step.a), static_cast<char>(step.b))), 1);
      case 4:  // a request
        return SendBlock(stream, end, RequestBlock(step), step.d);
      case 5:  // its trailers
        return SendBlock(stream, kEndStream, "", step.d);
      case 6: {  // messages
        const std::string message = Message(std::string(SizeOf(step.a) & 0x3FFF, 'm'));
        return Send(Frame(kData, end, stream, Repeated(message, 1 + step.b)), 1 + SizeOf(step.c));
      }
      case 7: {  // the beginning of a message, and perhaps padding
        const std::string begun = std::string(1, static_cast<char>(step.b & 1)) +
                                  BigEndian(static_cast<uint32_t>(SizeOf(step.a))) + std::string(step.c, 'm');
        return Send((step.d & 1) != 0 ? Frame(kData, end | kPadded, stream,
                                              static_cast<char>(step.d) + begun + std::string(step.d, '\0'))
                                      : Frame(kData, end, stream, begun),
                    1);
      }
      case 8:
        return Send(ControlFrame(step, stream), 1 + SizeOf(step.c));
      default:  // the peer waits for what it has sent so far to be taken
        return pieces_.push_back("");
    }
  }
  const std::vector<std::string>& pieces() const { return pieces_; }

 private:
  void AddField(const Step& step) {
    static constexpr std::string_view kNames[] = {"",      "-bin",          "grpc-timeout", "content-type",
                                                  ":path", "grpc-encoding", "cookie",       "te"};
    static constexpr char kValues[] = {'v', ',', 'A', '9', '%', '=', ' ', 'x'};
    const std::string name = std::string(SizeOf(step.c), 'n') + std::string(kNames[step.a % 8]);
    const std::string value(SizeOf(step.d), kValues[step.b % 8]);
    AddToBlock(Literal(name, value, (step.a & 128) != 0 ? kIndexing : kNotIndexed), 1 + (step.b >> 3));
  }
  void AddToBlock(const std::string& field, size_t times) {
    const size_t room = kMaxBlockBytes - std::min(kMaxBlockBytes, block_.size());
    block_ += Repeated(field, std::min(times, room / field.size()));
  }
  static std::string RequestBlock(const Step& step) {
    static constexpr std::string_view kPaths[] = {"/f/E", "/f/H", "/f/R", "/f/F", "/f/C", "/f/I", "/", "f"};
    return RequestFields(kPaths[step.a % 8], (step.b & 1) == 0 ? "POST" : "GET");
  }
  // In frames of half a mebibyte, or of `pieces` bytes, so that there are CONTINUATIONs.
  void SendBlock(uint32_t stream, uint8_t flags, const std::string& fields, uint8_t pieces) {
    const size_t frame_bytes = pieces == 0 ? kMaxBlockBytes : std::max(SizeOf(pieces), block_.size() / 64);
    Send(HeaderFrames(stream, flags, fields + block_, frame_bytes), 1);
    block_.clear();
  }
  static std::string ControlFrame(const Step& step, uint32_t stream) {
    const std::string number = BigEndian(static_cast<uint32_t>(SizeOf(step.b)));
    switch (step.a % 9) {
      case 0:
        return Frame(kPing, step.b & kAck, 0, "12345678");
      case 1:
        return Frame(kSettings, 0, 0, Repeated(BigEndian(uint32_t{step.d} << 16).substr(0, 2) + number, step.b % 40));
      case 2:
        return Frame(kWindowUpdate, 0, (step.d & 1) != 0 ? stream : 0, number);
      case 3:
        return Frame(kReset, 0, stream, BigEndian(step.b));
      case 4:
        return Frame(kPriority, 0, stream, number + "w");
      case 5:
        return Frame(kGoAway, 0, 0, BigEndian(stream) + number + std::string(step.d, 'g'));
      case 6:
        return Frame(kPriorityUpdate, 0, 0, BigEndian(stream) + "u=" + static_cast<char>('0' + step.b % 10));
      case 7:
        return Frame(kUnknown, step.d, stream, std::string(step.b, 'u'));
      default:
        return Frame(kData, 0, stream, "");
    }
  }
  void Send(const std::string& frames, size_t times) {
    const size_t room = kMaxBytes - std::min(kMaxBytes, sent_);
    const std::string bytes = Repeated(frames, std::min(times, room / frames.size()));
    sent_ += bytes.size();
    pieces_.back() += bytes;
  }

  std::vector<std::string> pieces_ = {Preface()};
  size_t sent_ = 0;
  std::string block_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] == 0) {
    Judge({Preface() + std::string(reinterpret_cast<const char*>(data) + 1, size - 1)});
    return 0;
  }
  Traffic traffic;
  for (size_t i = 1; i + kStepBytes <= size && i < kStepBytes * kMaxSteps; i += kStepBytes) {
    traffic.Take({data[i], data[i + 1], data[i + 2], data[i + 3], data[i + 4], data[i + 5]});
  }
  Judge(traffic.pieces());
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Changes whole steps and their sizes as often as bytes.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  std::minstd_rand random(seed);
  if (size < 1 + kStepBytes || data[0] == 0 || random() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const size_t steps = (size - 1) / kStepBytes;
  for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
    uint8_t* const step = data + 1 + kStepBytes * (random() % steps);
    uint8_t* const other = data + 1 + kStepBytes * (random() % steps);
    switch (random() % 6) {
      case 0:
        step[0] = static_cast<uint8_t>(random() % kKinds);
        break;
      case 1:
        step[1 + random() % 5] = static_cast<uint8_t>(random());
        break;
      case 2:
        std::swap_ranges(step, step + kStepBytes, other);
        break;
      case 3:
        std::copy_n(step, kStepBytes, other);
        break;
      default:  // a power of two
        step[2 + random() % 4] = static_cast<uint8_t>(128 + random() % kPowers);
    }
  }
  return size;
}

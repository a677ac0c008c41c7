// What the bytes of a stranger may cost the server, in one place: the table of tests/amplification and the fuzzer of
// cost (tests/fuzz/native_cost_fuzz.cc) both fail above these bounds.
//
// A cost is bounded by the sum over the units that were sent: so much for each byte on the wire, and in addition so
// much for each frame, each block of headers, each message. The numbers were measured on a busy machine of two cores on
// 2026-11-26 and are five to ten times the dearest honest row of the table; what they were set against, 16 KiB of
// metadata that became 64 MiB, and a byte of trailers that took a microsecond, is over ten times as dear again. A
// change that needs a higher bound has made something dearer for everybody: say so in its commit.
//
// Memory is counted as malloc gives it. Buffers that are mapped are not in it: they hold messages, which are admitted
// within a budget before they are read (tests/server/rpc/edge/admission_test.cc). Time is CPU time of the server's
// threads, system calls included. Plain values and pure functions.
#ifndef NORMD_TESTS_AMPLIFICATION_BOUNDS_H_
#define NORMD_TESTS_AMPLIFICATION_BOUNDS_H_

#include <algorithm>

namespace normd {

struct Cost {
  double cpu_ns = 0;
  double allocated_bytes = 0;  // in all, whether freed again or not
  double peak_bytes = 0;       // held at the same time
  double shown_bytes = 0;      // names and values of header fields that nghttp2 decoded for us: a count of its work
};

constexpr Cost operator+(const Cost& a, const Cost& b) {
  return {a.cpu_ns + b.cpu_ns, a.allocated_bytes + b.allocated_bytes, a.peak_bytes + b.peak_bytes,
          a.shown_bytes + b.shown_bytes};
}
constexpr Cost operator*(double times, const Cost& cost) {
  return {times * cost.cpu_ns, times * cost.allocated_bytes, times * cost.peak_bytes, times * cost.shown_bytes};
}

// What was sent. Whoever sends a stranger's unit that is not here adds it with a bound of its own.
struct Units {
  double bytes = 0;          // on the wire
  double frames = 0;         // of HTTP/2
  double header_blocks = 0;  // a request's headers, or its trailers
  double messages = 0;       // of gRPC, each of which is answered
  double records = 0;        // of TLS
  double requests = 0;       // whole ones: a unary call through the services, a registration
  double batch_items = 0;    // and sessions of a page
  double pages = 0;          // of the admin port
  double handshakes = 0;     // of TLS
  double stored_bytes = 0;   // statistics and parameters of the sessions that are made
};

// A byte is copied from the socket, and perhaps kept once, in memory that grows by doubling. The dearest are literals
// of four bytes that enter HPACK's table: 50 ns and 50 bytes a byte, for an entry each, which does not live long.
inline constexpr Cost kByteCost = {.cpu_ns = 200, .allocated_bytes = 100, .peak_bytes = 8, .shown_bytes = 2};
// A frame may be answered by another one: PING, SETTINGS, RST_STREAM. 0.3 to 2 us.
inline constexpr Cost kFrameCost = {.cpu_ns = 8'000, .allocated_bytes = 2'048, .peak_bytes = 1'024};
// A stream, a call with its callbacks, and metadata, which a table that both sides keep may name by a byte: 64 KiB of
// fields are looked at before a block is given up, 16 KiB are kept, by doubling: 6 us for a usual call, 50 for 64 KiB.
inline constexpr Cost kHeaderBlockCost = {
    .cpu_ns = 200'000, .allocated_bytes = 128 << 10, .peak_bytes = 64 << 10, .shown_bytes = 80 << 10};
// Read, given to its call, and answered by as large a one: 4 us.
inline constexpr Cost kMessageCost = {.cpu_ns = 20'000, .allocated_bytes = 4'096, .peak_bytes = 256};
// Decrypted, and perhaps one of those that change keys.
inline constexpr Cost kRecordCost = {.cpu_ns = 4'000, .allocated_bytes = 512, .peak_bytes = 64};
// Decoded, executed, and answered, with an error and its details at the worst.
inline constexpr Cost kRequestCost = {.cpu_ns = 1'000'000, .allocated_bytes = 256 << 10, .peak_bytes = 64 << 10};
// An item is a call of its own, but for its stream, however few bytes it has: 8 us and 8 KB, of which 5 are held until
// the batch is answered, one of four numbers as one of two bytes that is an error. That is why a batch is admitted, and
// leaves its queue, by its items.
inline constexpr Cost kBatchItemCost = {.cpu_ns = 40'000, .allocated_bytes = 40 << 10, .peak_bytes = 16 << 10};
// A number of channels makes statistics without a byte of them on the wire: a stranger may fill what
// --max_parameter_bytes, --max_total_bytes and the quota of the tenant leave, and no more.
inline constexpr Cost kStoredByteCost = {.cpu_ns = 10, .allocated_bytes = 16, .peak_bytes = 6};
// A signature, a secret, and the state of a connection: 0.6 ms and 590 KB.
inline constexpr Cost kHandshakeCost = {.cpu_ns = 4e6, .allocated_bytes = 3 << 20, .peak_bytes = 128 << 10};
// All metrics as text, and tables made of them.
inline constexpr Cost kPageCost = {.cpu_ns = 20e6, .allocated_bytes = 8 << 20, .peak_bytes = 1 << 20};
// The connection itself, wake-ups of the loop, and what a clock of CPU time is wrong by.
inline constexpr Cost kFixedCost = {
    .cpu_ns = 3e6, .allocated_bytes = 256 << 10, .peak_bytes = 192 << 10, .shown_bytes = 1'024};

constexpr Cost Bound(const Units& units) {
  return kFixedCost + units.bytes * kByteCost + units.frames * kFrameCost + units.header_blocks * kHeaderBlockCost +
         units.messages * kMessageCost + units.records * kRecordCost + units.requests * kRequestCost +
         units.batch_items * kBatchItemCost + units.pages * kPageCost + units.handshakes * kHandshakeCost +
         units.stored_bytes * kStoredByteCost;
}

// The least of two measurements of the same bytes: what else a machine does only adds to them.
constexpr Cost Least(const Cost& a, const Cost& b) {
  return {std::min(a.cpu_ns, b.cpu_ns), std::min(a.allocated_bytes, b.allocated_bytes),
          std::min(a.peak_bytes, b.peak_bytes), std::min(a.shown_bytes, b.shown_bytes)};
}

// By how much the cost is over the bound, at its worst; 1 is the bound.
struct Share {
  double value = 0;
  const char* of = "";
};

constexpr Share WorstShare(const Cost& cost, const Cost& bound) {
  Share worst;
  const auto look = [&worst](double value, double limit, const char* of) {
    if (limit > 0 && value / limit > worst.value) worst = {.value = value / limit, .of = of};
  };
  look(cost.cpu_ns, bound.cpu_ns, "CPU time");
  look(cost.allocated_bytes, bound.allocated_bytes, "bytes allocated");
  look(cost.peak_bytes, bound.peak_bytes, "bytes held");
  look(cost.shown_bytes, bound.shown_bytes, "bytes of fields decoded");
  return worst;
}

}  // namespace normd

#endif  // NORMD_TESTS_AMPLIFICATION_BOUNDS_H_

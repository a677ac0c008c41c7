// The contents of a load: weighted entries of method, shape, dtype, transport and spec or session. They are parsed and
// checked here before anything is allocated; calls.h makes the tensors. Plain values.
#ifndef NORMD_CLIENT_NORMLOAD_MIX_H_
#define NORMD_CLIENT_NORMLOAD_MIX_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/args.h"
#include "client/cpp/tensor.h"
#include "normd/v1/norm.pb.h"

namespace normd::client {

// kShared is a unary call whose tensors of 64 KiB and more are in shared memory; smaller tensors are sent.
enum class Transport { kUnary, kBatch, kStream, kShared };

absl::string_view TransportName(Transport transport);

struct MixEntry {
  double weight = 1;  // the entry's share of the calls is its weight over the sum of all weights
  std::string method = "layer-norm";
  v1::NormSpec spec;    // for calls without a session
  std::string session;  // "sessions/{id}", or empty
  std::vector<int64_t> shape = {256, 768};
  DType dtype = v1::DTYPE_F32;
  Transport transport = Transport::kUnary;
  int batch_items = 16;  // tensors in one call of kBatch
  bool training = false;
  bool steps = false;  // training steps carry a StepId

  int items() const { return transport == Transport::kBatch ? batch_items : 1; }
  int64_t rows() const;  // of one tensor: the product of all extents but the last
  // Tensor bytes of one call.
  int64_t bytes() const;
  // "rms-norm 16x1024 f16 stream"
  std::string name() const;
};

inline constexpr size_t kMaxEntries = 64;

// Flags that describe one call. They are also the keys of a mix entry, which has "weight" as well.
std::vector<FlagSpec> CallFlags();
// The entry that the flags describe. UsageError, naming the flag, its value and its limit.
absl::StatusOr<MixEntry> MakeEntry(const ParsedArgs& args);

// Parses "weight=3,method=rms-norm,shape=16x1024,axes=0,1,training". Keys are the flags of one call; a switch is its
// name alone.
absl::StatusOr<MixEntry> ParseMixEntry(absl::string_view text);
// Parses a list of objects, or an object whose "entries" is such a list. Values are lists of integers, numbers, strings
// and booleans.
absl::StatusOr<std::vector<MixEntry>> ParseMixJson(absl::string_view text);
// Parses the values of --mix. A value that ends in .json is the name of a file to read. Errors name the value.
absl::StatusOr<std::vector<MixEntry>> ParseMix(absl::Span<const std::string> values);

inline bool IsShared(const MixEntry& entry) { return entry.transport == Transport::kShared; }
// Shared memory needs a Unix socket, and is used by all unary calls of a run or by none, because they share
// connections.
absl::Status CheckShared(absl::Span<const MixEntry> entries, absl::string_view server);

// An error if the calls of `concurrency` workers would take more memory than one process should.
absl::Status CheckMemory(absl::Span<const MixEntry> entries, int concurrency);

// Draws entries in proportion to their weights. Not thread-safe.
class MixPicker {
 public:
  // REQUIRES: at least one entry.
  MixPicker(absl::Span<const MixEntry> entries, uint64_t seed);
  size_t Next();

 private:
  std::vector<double> bounds_;  // running sums of the weights
  std::mt19937_64 random_;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_MIX_H_

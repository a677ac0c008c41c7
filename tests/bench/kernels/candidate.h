// What does a workload: normd at one precision, a copy, oneDNN, PyTorch. All work on the same Buffers.
// Threads: each is used by one thread at a time and may have threads of its own.
#ifndef NORMD_TESTS_BENCH_KERNELS_CANDIDATE_H_
#define NORMD_TESTS_BENCH_KERNELS_CANDIDATE_H_

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/bench/kernels/buffers.h"
#include "tests/bench/kernels/workload.h"

namespace normd::bench {

// A round of one candidate: some calls.
struct Batch {
  double seconds = 0;      // of one call, on average
  double page_faults = 0;  // of one call, in the process that did it
};

class Candidate {
 public:
  virtual ~Candidate() = default;

  // "oneDNN"
  virtual std::string_view name() const = 0;
  // Makes ready to do `workload` on `threads` threads; false where the candidate does not have the operation. Both must
  // live until the next Prepare.
  virtual bool Prepare(const Workload& workload, const Buffers& buffers, int threads) = 0;
  // Calls and times `calls` times, at least once. REQUIRES: Prepare was true.
  virtual Batch Run(int64_t calls);
  // Whether y is the result after Prepare and Run, which is then compared with those of others.
  virtual bool WritesResult() const { return false; }
  // Whether its threads spin for a while after Run, which others should not pay for.
  virtual bool Spins() const { return false; }
  // The process whose threads do the work.
  virtual pid_t pid() const { return getpid(); }

 protected:
  // Does the workload once, in this process, which is all that most candidates have to say.
  virtual void Call() {}
};

using Candidates = std::vector<std::unique_ptr<Candidate>>;

// Submits one job to a CPU backend, as the engine would, and waits.
std::unique_ptr<Candidate> MakeNormd(Precision precision);
// Copies x to y with vector stores, or with stores that go past the caches.
std::unique_ptr<Candidate> MakeCopy(bool non_temporal);
// Null where this was built without oneDNN.
std::unique_ptr<Candidate> MakeOneDnn();
// "oneDNN 2.6.3, ..." or why there is none.
std::string OneDnnText();
// Starts torch_peer.py with `python` as a child that maps the same pages as `buffers`; the child ends with the object.
// `text` is set to versions and settings.
std::unique_ptr<Candidate> StartTorch(const std::string& python, const Buffers& buffers, std::string* text);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_KERNELS_CANDIDATE_H_

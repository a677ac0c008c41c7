// Runs a case on a backend and keeps the bytes: the one way by which kernel tests execute anything.
// A CaseRun owns every buffer of its job, so several may travel in one Submit. Thread-compatible.
#ifndef NORMD_TESTS_SUPPORT_RUN_CASE_H_
#define NORMD_TESTS_SUPPORT_RUN_CASE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/plan.h"
#include "tests/support/case.h"

namespace normd {

// What a job wrote. The strings have exactly the bytes of their tensors (at least one byte of room is behind them).
struct Outputs {
  std::string y, h, mean, inverse_std;
  Moments moments;  // empty with given statistics
};

absl::StatusOr<NormPlan> PlanOf(const Case& c);

// Names the first difference, bit for bit: "y: byte 12 of 4096". "" when equal.
std::string DifferenceOf(const Outputs& a, const Outputs& b);

class CaseRun {
 public:
  // Inputs lie `misalignment` bytes past an aligned address; outputs too. REQUIRES: 0 <= misalignment < 64.
  CaseRun(const Backend& backend, const Case& c, const NormPlan& plan, const CaseData& data, int misalignment);
  CaseRun(const CaseRun&) = delete;
  CaseRun& operator=(const CaseRun&) = delete;

  Job MakeJob();
  // REQUIRES: the job was run.
  Outputs TakeOutputs() const;

 private:
  // Bytes at a chosen distance from alignment, exactly as long as needed so that sanitizers see any step outside.
  class Bytes {
   public:
    Bytes(size_t size, int misalignment);
    Bytes(const std::string& content, int misalignment);
    void* data() { return data_.get() + offset_; }
    size_t size() const { return size_; }
    std::string Content() const { return std::string(data_.get() + offset_, size_); }

   private:
    struct Free {
      void operator()(char* p) const;
    };
    size_t size_;
    size_t offset_;
    std::unique_ptr<char, Free> data_;
  };

  TensorView View(Bytes& bytes, DType dtype, const Shape& shape) const;

  const Case& case_;
  const NormPlan plan_;
  const CaseData& data_;
  Bytes x_, weight_, bias_, residual_, y_, h_, mean_, inverse_std_;
  Moments moments_;
  std::shared_ptr<const PreparedParameters> parameters_;
};

// Submits and waits.
absl::Status RunJobs(Backend& backend, std::vector<Job> jobs);

// One case alone, aligned.
absl::StatusOr<Outputs> RunCase(Backend& backend, const Case& c, const CaseData& data);

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_RUN_CASE_H_

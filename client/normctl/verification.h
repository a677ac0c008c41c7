// What normctl verify has found out, as text for people and as JSON for programs.
#ifndef NORMD_CLIENT_NORMCTL_VERIFICATION_H_
#define NORMD_CLIENT_NORMCTL_VERIFICATION_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/cli/program.h"
#include "client/normctl/find_variant.h"
#include "client/normctl/judge.h"
#include "client/normctl/variant_judge.h"
#include "client/normctl/variants.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

struct Verification {
  v1::Applied applied;
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<double> x, candidate;
  Judgement judgement;
  double max_ulp;
  bool has_steps = false;           // the exact answer is rounded before the affine step
  Variant given;                    // what was asked for, with defaults resolved
  std::vector<FoundVariant> found;  // of --find-variant: the best definition first

  const UlpReport& report() const { return judgement.report; }
  // Whether every error is within max_ulp.
  bool Fits(const Fit& fit) const { return fit.mismatches == 0 && fit.max_ulps <= max_ulp + ExactnessUlps(dtype); }
  bool passed() const { return Fits(FitOf(judgement)); }
  std::string Verdict() const;  // in one sentence
};

void PrintVerification(const Verification& verification, const Terminal& terminal);
nlohmann::json VerificationJson(const Verification& verification);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_VERIFICATION_H_

// Judges another program's tensor by one definition after the other: what FindVariant asks. In the path: normctl verify
// --find-variant, between the search and the server.
#ifndef NORMD_CLIENT_NORMCTL_VARIANT_JUDGE_H_
#define NORMD_CLIENT_NORMCTL_VARIANT_JUDGE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/client.h"
#include "client/normctl/find_variant.h"
#include "client/normctl/judge.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

Fit FitOf(const Judgement& judgement);

// Borrows all that it is given. Not thread-safe.
class VariantJudge {
 public:
  // `request` has a spec as its target. `dtype` is the one whose ulps count.
  VariantJudge(Client& client, const v1::NormalizeRequest& request, DType dtype, absl::Span<const double> candidate,
               double floor)
      : client_(client), request_(request), dtype_(dtype), candidate_(candidate), floor_(floor) {}

  VariantInput Input() const;
  // nullopt if the server says that the definition does not fit the input.
  absl::StatusOr<std::optional<Fit>> operator()(const Variant& variant) const;

 private:
  absl::StatusOr<v1::NormalizeRequest> RequestOf(const Variant& variant) const;
  absl::StatusOr<double> CountOf(v1::NormalizeRequest request) const;
  // Makes `request` ask for unbiased statistics; returns the factor of the answer that is left.
  absl::StatusOr<double> SetUnbiased(v1::NormalizeRequest& request) const;

  Client& client_;
  const v1::NormalizeRequest& request_;
  const DType dtype_;
  const absl::Span<const double> candidate_;
  const double floor_;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_VARIANT_JUDGE_H_

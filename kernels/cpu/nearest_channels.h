// Adjacent channels whose statistics are ready, applied in the order of memory and to the nearest value.
// In the path: run_channels.cc, between its reduce pass, or statistics that are given, and ApplyNearestQuickly.
#ifndef NORMD_KERNELS_CPU_NEAREST_CHANNELS_H_
#define NORMD_KERNELS_CPU_NEAREST_CHANNELS_H_

#include <cstdint>
#include <vector>

#include <optional>
#include <vector>
#include "absl/functional/function_ref.h"

#include "absl/types/span.h"
#include "kernels/cpu/folded_columns.h"
#include "kernels/cpu/nearest_group.h"
#include "kernels/cpu/run.h"

namespace normd::cpu {

// Statistics and bounds of adjacent channels, one number each. Borrows them.
struct ReadyForNearest {
  const double* mean = nullptr;
  const double* shift = nullptr;
  const double* delta = nullptr;  // null: 0
  const double* inverse = nullptr;
  const double* beta = nullptr;  // null: 0
  const double* kappa = nullptr;
  int64_t first = 0;  // the channel of keep1 whose numbers come first
  int64_t count = 0;
};

// REQUIRES: narrow elements with a mean, one w and b for each channel, AFFINE_THEN_CAST, finite statistics. Borrows the
// run and the statistics; threads may share it.
class NearestChannels {
 public:
  NearestChannels(const Run& run, const ReadyForNearest& channels);

  // Applies the channels of keep1 in `samples` samples of one k0, from `sample` on, which is an index of [keep0,
  // reduce0].
  void Apply(GroupRange channels, int64_t sample, int64_t samples) const;

 private:
  QuickSpan SpanOf(GroupRange channels) const;
  void PutAt(int64_t index, QuickSpan* span) const;

  const Run& run_;
  const int64_t first_;
  const FoldedColumns folded_;
  QuickSpan span_;
};

// Statistics and bounds of all channels, which are known before the apply pass begins.
struct KnownChannels {
  std::vector<double> mean, shift, inverse, beta, kappa;
};
// Of moments that are rounded once: the statistics of a run that RunWithExactMoments has summed. Absent where one is
// not finite, or 1 / D is out of range.
std::optional<KnownChannels> ChannelsOfMoments(const DivisorRule& rule, absl::Span<const Moment> moments);

// RunGivenChannels to the nearest value: of given statistics, or of run.known.
void RunGivenNearest(const Run& run);

// Elements [begin, end) of the segments [r0, r0_end) of the group (k0, k1): whole channels, or a part of one.
struct GroupPiece {
  int64_t k0 = 0, k1 = 0;
  int64_t r0 = 0, r0_end = 0;
  int64_t begin = 0, end = 0;
};
// True if ApplyGroupQuickly() can apply the elements of a group with this bound.
bool LooksQuickly(const Run& run, const GroupBound& bound);
// Applies a piece to the nearest value, and reports what is undecided.
void ApplyGroupQuickly(const Run& run, const FinishedStatistics& group, const GroupBound& bound,
                       const GroupPiece& piece, absl::FunctionRef<void(const NearestPlace&)> report);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_NEAREST_CHANNELS_H_

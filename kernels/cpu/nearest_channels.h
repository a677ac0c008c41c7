// Adjacent channels whose statistics are ready, applied in the order of memory and to the nearest value.
// In the path: run_channels.cc, between its reduce pass, or statistics that are given or known, and
// ApplyNearestQuickly. run_exact.cc makes those that are known, and nearest_tile.cc takes them, too.
#ifndef NORMD_KERNELS_CPU_NEAREST_CHANNELS_H_
#define NORMD_KERNELS_CPU_NEAREST_CHANNELS_H_

#include <cstdint>
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

  // Samples [first, first + count) of [keep0, reduce0], all of one k0.
  struct Samples {
    int64_t first = 0, count = 1;
  };

  // Applies the channels of keep1 in some samples.
  void Apply(GroupRange channels, Samples samples) const;
  // The same in two steps, of which several threads do the first: Look() adds what is undecided to `groups`, and
  // Decide() decides what was added of all samples that were looked at, for which it sums a channel once.
  void Look(GroupRange channels, Samples samples, NearestGroups* groups) const;
  void Decide(Samples samples, bool split, NearestGroups* groups) const;

 private:
  QuickSpan SpanOf(GroupRange channels) const;
  void PutAt(int64_t index, QuickSpan* span) const;
  void ApplyTo(GroupRange channels, Samples samples, bool quickly,
               absl::FunctionRef<void(const NearestPlace&)> take) const;

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
// not finite, 1 / D is out of range, or a mean is so far from 0 that many elements would be undecided.
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

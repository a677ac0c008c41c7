// Counts durations with three significant digits, from 1 ns to beyond 10 minutes. Buckets are linear inside each power
// of two (log-linear), so a quantile is off by less than one part in 1024. Histograms of several threads can be merged.
// Memory grows with the largest value, up to 250 KiB. Not thread-safe.
#ifndef NORMD_CLIENT_NORMLOAD_HISTOGRAM_H_
#define NORMD_CLIENT_NORMLOAD_HISTOGRAM_H_

#include <cstdint>
#include <vector>

namespace normd::client {

class Histogram {
 public:
  // Values below 1 count as 0, and values over kMax count as kMax.
  void Record(int64_t nanoseconds);
  void Merge(const Histogram& other);

  int64_t count() const { return count_; }
  int64_t max() const { return max_; }                    // exact
  int64_t min() const { return count_ == 0 ? 0 : min_; }  // exact
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

  // The smallest recorded value that at least the share `quantile` (in [0, 1]) of all values do not exceed, within the
  // resolution and never above max(). 0 for an empty histogram.
  int64_t Quantile(double quantile) const;

  static constexpr int64_t kMax = int64_t{1} << 40;  // 18 minutes

 private:
  // Each power of two has 1024 buckets; each value below 2048 has a bucket of its own.
  static constexpr int kHalfBits = 10;

  static int Index(int64_t value);
  static int64_t UpperValue(int index);  // the largest value of the bucket

  std::vector<int64_t> counts_;  // up to the largest value's bucket
  int64_t count_ = 0;
  int64_t max_ = 0;
  int64_t min_ = kMax;
  double sum_ = 0;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_HISTOGRAM_H_

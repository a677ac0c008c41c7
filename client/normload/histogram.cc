#include "client/normload/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace normd::client {

int Histogram::Index(int64_t value) {
  // Keeps the kHalfBits + 1 leading bits and drops the bits below them.
  const int width = static_cast<int>(std::bit_width(static_cast<uint64_t>(value)));
  const int shift = std::max(0, width - (kHalfBits + 1));
  return (shift << kHalfBits) + static_cast<int>(value >> shift);
}

int64_t Histogram::UpperValue(int index) {
  if (index < (2 << kHalfBits)) return index;
  const int shift = (index >> kHalfBits) - 1;
  const int64_t leading = index - (shift << kHalfBits);
  return ((leading + 1) << shift) - 1;
}

void Histogram::Record(int64_t nanoseconds) {
  const int64_t value = std::clamp<int64_t>(nanoseconds, 0, kMax);
  const auto index = static_cast<size_t>(Index(value));
  if (index >= counts_.size()) counts_.resize(index + 1);
  ++counts_[index];
  ++count_;
  sum_ += static_cast<double>(value);
  max_ = std::max(max_, value);
  min_ = std::min(min_, value);
}

void Histogram::Merge(const Histogram& other) {
  if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
  for (size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
  min_ = std::min(min_, other.min_);
}

int64_t Histogram::Quantile(double quantile) const {
  if (count_ == 0) return 0;
  const auto wanted = static_cast<int64_t>(std::ceil(std::clamp(quantile, 0.0, 1.0) * static_cast<double>(count_)));
  int64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= std::max<int64_t>(wanted, 1)) return std::min(UpperValue(static_cast<int>(i)), max_);
  }
  return max_;
}

}  // namespace normd::client

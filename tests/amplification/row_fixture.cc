#include "tests/amplification/row_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/amplification/cost_peer.h"

namespace normd {
namespace {

constexpr int kMostTries = 4;

void Print(const std::string& name, const Units& units, const Cost& cost, const Share& worst) {
  std::printf("%-52s %9.0f B  %8.1f ns/B  %8.1f allocated/B  %8.1f held/B  %5.2f of its bound (%s)\n", name.c_str(),
              units.bytes, cost.cpu_ns / units.bytes, cost.allocated_bytes / units.bytes, cost.peak_bytes / units.bytes,
              worst.value, worst.of);
}

}  // namespace

void ExpectWithinBound(const std::string& name, const Units& units, const std::function<Cost()>& spend) {
  const Cost bound = Bound(units);
  Cost cost = spend();
  // Counts are the same each time; a busy machine adds to CPU time.
  for (int i = 1; i < kMostTries && cost.cpu_ns > bound.cpu_ns / 2; ++i) cost = Least(cost, spend());
  const Share worst = WorstShare(cost, bound);
  Print(name, units, cost, worst);
  EXPECT_LE(worst.value, 1) << name << ": " << worst.of << " for " << units.bytes
                            << " bytes on the wire: " << cost.cpu_ns / 1e6 << " ms of CPU time of "
                            << bound.cpu_ns / 1e6 << ", " << cost.allocated_bytes << " bytes allocated of "
                            << bound.allocated_bytes << ", " << cost.peak_bytes << " held of " << bound.peak_bytes
                            << ", " << cost.shown_bytes << " of fields decoded of " << bound.shown_bytes;
}

void ExpectWithinBound(const Row& row) {
  ExpectWithinBound(row.name, row.units, [&row] { return CostOfPeer(row.before, {row.bytes}); });
}

}  // namespace normd

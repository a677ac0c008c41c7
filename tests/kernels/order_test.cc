#include "kernels/summation_order.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace normd::order {
namespace {

// The order as text: "((0+1)+2)".
std::string FoldedText(int64_t n, int64_t stride = 1) {
  std::vector<std::string> items(static_cast<size_t>(n * stride + 1), "untouched");
  for (int64_t i = 0; i < n; ++i) items[i * stride] = std::to_string(i);
  PairwiseFold(items.data(), n, stride, [](std::string& a, const std::string& b) { a = "(" + a + "+" + b + ")"; });
  for (int64_t i = 0; i < n * stride; ++i) {
    if (i % stride != 0) {
      EXPECT_EQ(items[i], "untouched");
    }
  }
  return items[0];
}

TEST(PairwiseFold, AddsNeighboursLevelByLevelAndCarriesAnOddLastOne) {
  EXPECT_EQ(FoldedText(1), "0");
  EXPECT_EQ(FoldedText(2), "(0+1)");
  EXPECT_EQ(FoldedText(3), "((0+1)+2)");
  EXPECT_EQ(FoldedText(4), "((0+1)+(2+3))");
  EXPECT_EQ(FoldedText(5), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(FoldedText(6), "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(FoldedText(7), "(((0+1)+(2+3))+((4+5)+6))");
  EXPECT_EQ(FoldedText(9), "((((0+1)+(2+3))+((4+5)+(6+7)))+8)");
}

TEST(PairwiseFold, OfNothingTouchesNothing) {
  int item = 7;
  PairwiseFold(&item, 0, 1, [](int& a, int b) { a += b; });
  EXPECT_EQ(item, 7);
}

TEST(PairwiseFold, LeavesWhatLiesBetweenStridedItems) {
  for (const int64_t n : {1, 2, 3, 5, 8, 13}) EXPECT_EQ(FoldedText(n, 3), FoldedText(n, 1));
}

TEST(PairwiseFold, ABlockOfAPowerOfTwoIsASubtree) {
  // What lets a device fold 8 neighbours on its own: the tree over 24 items holds the tree over items 8 to 15.
  EXPECT_NE(FoldedText(24).find("(((8+9)+(10+11))+((12+13)+(14+15)))"), std::string::npos);
}

TEST(PairwiseFold, ItsOrderIsVisibleInBits) {
  // Another order gives other bits: a test that compares bits can tell.
  std::vector<double> values;
  for (int i = 1; i <= 100; ++i) values.push_back(1.0 / i);
  double sequential = 0;
  for (const double value : values) sequential += value;
  PairwiseFold(values.data(), 100, 1, [](double& a, double b) { a += b; });
  EXPECT_NE(values[0], sequential);
  EXPECT_NEAR(values[0], sequential, 1e-14);
}

TEST(PairwiseFold, IsTheTreeOfItemsThatAreFoldedAsTheyCome) {
  for (int64_t n = 1; n <= 70; ++n) {
    std::vector<std::string> kept;
    const auto fold = [&] {
      const std::string last = kept.back();
      kept.pop_back();
      kept.back() = "(" + kept.back() + "+" + last + ")";
    };
    for (int64_t i = 0; i < n; ++i) {
      kept.push_back(std::to_string(i));
      for (int folds = FoldsAfter(i); folds > 0; --folds) fold();
    }
    while (kept.size() > 1) fold();
    EXPECT_EQ(kept[0], FoldedText(n));
  }
}

TEST(Chunks, CoverEveryElementOnce) {
  EXPECT_EQ(RowChunks(0), 0);
  EXPECT_EQ(RowChunks(1), 1);
  EXPECT_EQ(RowChunks(kRowChunk), 1);
  EXPECT_EQ(RowChunks(kRowChunk + 1), 2);
  EXPECT_EQ(RowChunks((int64_t{1} << 40) + 1), (int64_t{1} << 30) + 1);
  EXPECT_EQ(ColumnBlocks(0), 0);
  EXPECT_EQ(ColumnBlocks(kColumnBlock - 1), 1);
  EXPECT_EQ(ColumnBlocks(kColumnBlock + 1), 2);
}

TEST(Chunks, OfShortSegmentsAreWholeSegments) {
  EXPECT_EQ(ChunkSegments(1), 16);
  EXPECT_EQ(ChunkSegments(64), 16);
  EXPECT_EQ(ChunkSegments(65), 8);
  EXPECT_EQ(ChunkSegments(196), 4);
  EXPECT_EQ(ChunkSegments(512), 2);
  EXPECT_EQ(ChunkSegments(513), 1);
  EXPECT_EQ(ChunkSegments(0), 1);
  EXPECT_EQ(StepSegments(49), 4);
  EXPECT_EQ(StepSegments(65), 2);
  EXPECT_EQ(StepSegments(129), 1);
  EXPECT_EQ(GroupChunks(21, 49), 2);
  EXPECT_EQ(GroupChunks(3, 1025), 6);
  EXPECT_EQ(GroupChunks(7, 0), 0);
  for (const int64_t length : {1, 2, 49, 64, 65, 196, 511, 512, 513, 1023, 1024, 1025, 4097}) {
    for (const int64_t segments : {1, 2, 15, 16, 17, 45}) {
      std::vector<int> seen(static_cast<size_t>(segments * length));
      for (int64_t i = 0; i < GroupChunks(segments, length); ++i) {
        const Chunk chunk = ChunkAt(segments, length, i);
        if (i > 0) {
          const Chunk next = ChunkAfter(ChunkAt(segments, length, i - 1), segments, length);
          EXPECT_TRUE(next.segment == chunk.segment && next.segments == chunk.segments && next.at == chunk.at &&
                      next.length == chunk.length)
              << i << " of " << segments << " of " << length;
        }
        EXPECT_LE(chunk.segments * chunk.length, kRowChunk);
        for (int64_t s = chunk.segment; s < chunk.segment + chunk.segments; ++s) {
          for (int64_t at = chunk.at; at < chunk.at + chunk.length; ++at) ++seen[static_cast<size_t>(s * length + at)];
        }
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), segments * length) << segments << " of " << length;
    }
  }
}

// FAST's bound rests on it: see kernels/README.md.
TEST(Chunks, FastAddsFewElementsAndFewStepsOneAfterTheOther) {
  for (int64_t length = 1; length <= kRowChunk; ++length) {
    const bool is_short = length < kFastRowStep;
    const int64_t steps = is_short ? CeilDiv(ChunkSegments(length), StepSegments(length))
                                   : ChunkSegments(length) * CeilDiv(length, kFastRowStep);
    EXPECT_LE(steps, 6) << length;
    const int64_t elements =
        is_short ? StepSegments(length) * CeilDiv(length, kFastPartials) : kFastRowStep / kFastPartials;
    EXPECT_LE(elements, 4) << length;
  }
}

TEST(Chunks, AreTheConstantsThatResultsDependOn) {
  // Changing one changes the bits of results: then kNumerics is raised, too.
  EXPECT_EQ(kRowChunk, 1024);
  EXPECT_EQ(kPartials, 32);
  EXPECT_EQ(kFastPartials, 64);
  EXPECT_EQ(kFastRowStep, 256);
  EXPECT_EQ(kColumnBlock, 32);
}

}  // namespace
}  // namespace normd::order

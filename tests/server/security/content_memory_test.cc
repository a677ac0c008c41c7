#include "server/security/content_memory.h"

#include <gtest/gtest.h>

namespace normd {
namespace {

TEST(ContentMemory, SeesWhenAContentHasSettled) {
  ContentMemory memory;
  EXPECT_FALSE(memory.See("")) << "nothing was read before";
  EXPECT_TRUE(memory.See(""));
  EXPECT_FALSE(memory.See("half"));
  EXPECT_FALSE(memory.See("whole"));
  EXPECT_TRUE(memory.See("whole"));
  EXPECT_FALSE(memory.See("half")) << "only the look before counts";
}

TEST(ContentMemory, TellsOfEachContentOnceUntilAnotherComes) {
  ContentMemory memory;
  EXPECT_TRUE(memory.Note("bad"));
  EXPECT_FALSE(memory.Note("bad"));
  EXPECT_FALSE(memory.See("good")) << "a look alone is no reason to tell anew";
  EXPECT_FALSE(memory.Note("bad"));
  EXPECT_TRUE(memory.Note("good"));
  EXPECT_TRUE(memory.Note("bad"));
}

}  // namespace
}  // namespace normd

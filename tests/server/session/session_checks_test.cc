#include "server/session/session_checks.h"

#include "gtest/gtest.h"
#include "kernels/errors.h"
#include "kernels/methods.h"

namespace normd {
namespace {

TEST(SessionChecksTest, IdsHaveOneForm) {
  for (const std::string& id : {std::string("a"), std::string("0"), std::string("a.b_c-d"), std::string(63, 'x')}) {
    EXPECT_TRUE(ValidateSessionId(id).ok()) << id;
  }
  for (const std::string& id :
       {std::string(), std::string("A"), std::string("-a"), std::string("a-"), std::string("."), std::string("a/b"),
        std::string("a b"), std::string("\xc3\xa4"), std::string(64, 'x'), std::string("a\0b", 3)}) {
    const absl::Status status = ValidateSessionId(id);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << id;
    EXPECT_EQ(GetErrorDetail(status)->field, "session_id");
  }
}

TEST(SessionChecksTest, MethodNamesAreReserved) {
  for (const MethodInfo& info : AllMethods()) {
    EXPECT_EQ(ValidateSessionId(info.name).code(), absl::StatusCode::kInvalidArgument) << info.name;
  }
}

TEST(SessionChecksTest, AHostileIdIsNotEchoedWhole) {
  const absl::Status status = ValidateSessionId(std::string(100'000, 'x'));
  EXPECT_LT(status.message().size(), 300);
}

}  // namespace
}  // namespace normd

#include "server/session/session_checks.h"

#include "gtest/gtest.h"
#include "kernels/base/errors.h"
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
  for (const MethodDefinition* method : AllMethods()) {
    const MethodInfo& info = method->info;
    EXPECT_EQ(ValidateSessionId(info.name).code(), absl::StatusCode::kInvalidArgument) << info.name;
  }
}

TEST(SessionChecksTest, AHostileIdIsNotEchoedWhole) {
  const absl::Status status = ValidateSessionId(std::string(100'000, 'x'));
  EXPECT_LT(status.message().size(), 300);
}

TEST(SessionChecksTest, AClientIdHidesNothingWhereItIsShown) {
  for (const std::string& id :
       {std::string("trainer 7/worker-3"), std::string("\u00e4\u65e5\u200b"), std::string(128, 'x')}) {
    EXPECT_TRUE(ValidateStepId({id, 1}).ok()) << id;
  }
  for (const std::string& id :
       {std::string("a\nb"), std::string("a\0b", 3), std::string("\x7f"), std::string("\u0085"),
        std::string("a\u202eb"), std::string("\u2066"), std::string("x\u200f"), std::string("\u061c")}) {
    const absl::Status status = ValidateStepId({id, 1});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << id;
    EXPECT_EQ(GetErrorDetail(status)->field, "step.client_id");
    EXPECT_TRUE(CheckStepIdSize({id, 1}).ok()) << "older servers took it";
  }
}

}  // namespace
}  // namespace normd

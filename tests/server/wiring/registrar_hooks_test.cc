#include "server/wiring/registrar_hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "server/rpc/services/method_names.h"
#include "tests/support/temporary_file.h"

namespace normd {
namespace {

using ::testing::HasSubstr;

TEST(RegistrarHooks, JudgeAndReportARegionAsRegisterRegionIs) {
  const TemporaryFile policy(
      "[[tenant]]\nname = \"vision\"\nidentities = [\"uid:*\"]\n"
      "[[allow]]\nidentities = [\"uid:7\"]\nmethods = [\"/normd.v1.SharedMemory/*\"]\n");
  const TemporaryFile place;
  SystemClock clock;
  const auto access =
      AccessControl::Open({.policy_file = policy.path(), .methods = rpc::AllMethodPaths()}, &clock).value();
  const auto audit = AuditLog::Open(place.folder() + "/audit", LogFormat::kText, &clock).value();
  const RegistrarHooks hooks = MakeRegistrarHooks(access.get(), audit.get());
  for (const uid_t uid : {7, 8}) hooks.on_registration(uid, hooks.may_register(uid));
  std::ifstream file(place.folder() + "/audit");
  const std::string lines(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(lines, HasSubstr("INFO audit method=/normd.v1.SharedMemory/RegisterRegion identity=uid:7 tenant=vision "
                               "peer=registrar code=OK\n"));
  EXPECT_THAT(lines, HasSubstr("WARN audit method=/normd.v1.SharedMemory/RegisterRegion identity=uid:8 tenant=vision "
                               "peer=registrar code=PERMISSION_DENIED denied=method\n"));
  EXPECT_EQ(access->stats().denied[static_cast<size_t>(Denial::kMethod)], 1);
}

}  // namespace
}  // namespace normd

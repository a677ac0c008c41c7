#include "server/rpc/codec/session_name.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"

namespace normd::rpc {
namespace {

TEST(SessionNameTest, ATenantAndANameMakeAKeyAndAKeyMakesAName) {
  EXPECT_EQ(*DecodeSessionName("sessions/a", "name", ""), "a");
  EXPECT_EQ(*DecodeSessionName("sessions/a", "name", "vision"), "/vision/a");
  EXPECT_EQ(EncodeSessionName("/vision/a"), "sessions/a");
  EXPECT_EQ(EncodeSessionName("a"), "sessions/a");
  EXPECT_EQ(*DecodeNewSessionId("a", "vision"), "/vision/a");
  EXPECT_EQ(*DecodeNewSessionId("", "vision"), "/vision/");
  EXPECT_EQ(*DecodeNewSessionId("", ""), "");
}

TEST(SessionNameTest, NoNameIsTheKeyOfAnotherTenantsSession) {
  for (const char* name :
       {"sessions//b/s", "sessions/b/s", "sessions//s", "sessions/", "sessions/s/", "/b/s", "s", ""}) {
    for (const char* tenant : {"", "a"}) {
      EXPECT_EQ(DecodeSessionName(name, "name", tenant).status().code(), absl::StatusCode::kInvalidArgument) << name;
    }
  }
  for (const char* id : {"/b/s", "b/s", "/b/", "/"}) {
    EXPECT_EQ(DecodeNewSessionId(id, "").status().code(), absl::StatusCode::kInvalidArgument) << id;
  }
}

TEST(SessionNameTest, APageTokenIsOfOneFilterAndOneTenant) {
  const std::string of_nobody = EncodePageToken("f=1", "m"), of_vision = EncodePageToken("f=1", "/vision/m");
  EXPECT_EQ(*DecodePageToken("f=1", of_nobody, ""), "m");
  EXPECT_EQ(*DecodePageToken("f=1", of_vision, "vision"), "/vision/m");
  EXPECT_EQ(*DecodePageToken("f=1", "", "vision"), "");
  EXPECT_EQ(of_nobody, absl::WebSafeBase64Escape("f=1\nm")) << "as before there were tenants";
  for (const auto& [token, filter, tenant] :
       {std::tuple(of_nobody, "f=2", ""), std::tuple(of_nobody, "f=1", "vision"), std::tuple(of_vision, "f=1", ""),
        std::tuple(of_vision, "f=1", "text"), std::tuple(of_vision, "f=2", "vision"),
        std::tuple(absl::WebSafeBase64Escape("f=1\n/vision/m"), "f=1", "vision")}) {
    EXPECT_EQ(DecodePageToken(filter, token, tenant).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace normd::rpc

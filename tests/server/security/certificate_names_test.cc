#include "server/security/certificate_names.h"

#include <gtest/gtest.h>

#include <string>

namespace normd {
namespace {

TEST(IdentityName, IsTheUriElseTheDnsNameElseTheCommonName) {
  EXPECT_EQ(IdentityName({.uri = "spiffe://Prod/a", .dns = "a.test", .common_name = "c"}), "uri:spiffe://Prod/a");
  EXPECT_EQ(IdentityName({.uri = "", .dns = "a.test", .common_name = "c"}), "dns:a.test");
  EXPECT_EQ(IdentityName({.uri = "", .dns = "", .common_name = "Trainer"}), "cn:Trainer");
  EXPECT_EQ(IdentityName({}), "cn:");
}

TEST(IdentityName, HasADnsNameInLowerCase) {
  EXPECT_EQ(IdentityName({.uri = "", .dns = "EVIL.example", .common_name = ""}), "dns:evil.example");
}

TEST(IdentityNameProblem, NamesFieldLengthAndLimit) {
  EXPECT_EQ(IdentityNameProblem("uri:" + std::string(kMaxCertificateNameBytes, 'y')), "");
  EXPECT_EQ(IdentityNameProblem("uri:" + std::string(60'016, 'y')),
            "the client's certificate has a uri of 60016 bytes; the limit is 255");
  EXPECT_EQ(IdentityNameProblem("dns:" + std::string(256, ':')),
            "the client's certificate has a dns of 256 bytes; the limit is 255");
  EXPECT_EQ(IdentityNameProblem(""), "") << "without a certificate there is no name";
}

}  // namespace
}  // namespace normd

#include "server/base/sha256.h"

#include <openssl/evp.h>

#include <memory>

namespace normd {

std::optional<Sha256Digest> Sha256(std::string_view bytes) {
  // Fetching the algorithm costs more than the hash of a token, so it is done once.
  static const EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  thread_local const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                                     &EVP_MD_CTX_free);
  Sha256Digest digest;
  const bool done = EVP_DigestInit_ex2(context.get(), sha256, nullptr) == 1 &&
                    EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) == 1 &&
                    EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) == 1;
  return done ? std::optional(digest) : std::nullopt;
}

}  // namespace normd

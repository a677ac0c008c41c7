// Owners of OpenSSL's objects.
// In the path: beside it. Threads: as OpenSSL's objects themselves.
#ifndef NORMD_SERVER_SECURITY_OPENSSL_OBJECTS_H_
#define NORMD_SERVER_SECURITY_OPENSSL_OBJECTS_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace normd {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using X509Ptr = std::unique_ptr<X509, Freer<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;

// Reads the text, which is borrowed.
inline BioPtr ReaderOf(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_OPENSSL_OBJECTS_H_

// The checks of certificate files before gRPC gets them: gRPC says of a wrong file only that a handshake failed.
// Reads files; keeps nothing. Safe from any thread.
#ifndef NORMD_CLIENT_CPP_PEM_FILES_H_
#define NORMD_CLIENT_CPP_PEM_FILES_H_

#include <string>

#include "absl/status/status.h"

namespace normd::client {

// INVALID_ARGUMENT, naming the file and the reason, unless `path` can be read and holds PEM certificates.
absl::Status CheckRootCertificates(const std::string& path);
// INVALID_ARGUMENT, naming the file and the reason, unless the two can be read, the key has no passphrase and is that
// of the first certificate.
absl::Status CheckClientCertificate(const std::string& certificate_path, const std::string& key_path);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_PEM_FILES_H_

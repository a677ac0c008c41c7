// What the connections and calls of one Client carry to be let in, made of its SecurityOptions: the one place that
// decides between plain text and TLS, and that adds the bearer token.
// In the path: MakeChannel (channels.h) takes the channel's part, PrepareContext the call's.
// Threads: safe from any thread. Ownership: a Client owns one; channels keep what they need of it.
#ifndef NORMD_CLIENT_CPP_CREDENTIALS_H_
#define NORMD_CLIENT_CPP_CREDENTIALS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/security.h"
#include "client/cpp/token.h"

namespace normd::client {

class Credentials {
 public:
  // INVALID_ARGUMENT, naming what is wrong, for files that cannot be used, options that exclude each other, a token
  // that would go in plain text over TCP, and TLS to a Unix socket.
  static absl::StatusOr<std::unique_ptr<Credentials>> Make(const std::string& target, const SecurityOptions& security);

  const std::shared_ptr<grpc::ChannelCredentials>& channel() const { return channel_; }
  // Adds the token to the metadata of a call, if there is one.
  void AddTo(grpc::ClientContext* context) const;

 private:
  Credentials(std::shared_ptr<grpc::ChannelCredentials> channel, std::unique_ptr<Token> token)
      : channel_(std::move(channel)), token_(std::move(token)) {}

  const std::shared_ptr<grpc::ChannelCredentials> channel_;
  const std::unique_ptr<Token> token_;  // or null
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_CREDENTIALS_H_

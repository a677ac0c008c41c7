// Reflection as an option of each server: what grpcurl and its like ask for the services and their messages.
// In the path: beside it. gRPC's own reflection library answers, with threads of its own; it lists services that are
// registered, so the services are registered here in a form that leaves every call to the dispatcher.
#ifndef NORMD_SERVER_RPC_SERVICES_REFLECTION_H_
#define NORMD_SERVER_RPC_SERVICES_REFLECTION_H_

#include <grpcpp/server_builder.h>

#include <memory>
#include <vector>

namespace normd::rpc {

class Reflection {
 public:
  explicit Reflection(bool on);
  ~Reflection();

  // The services are borrowed until the server is gone.
  void AddTo(grpc::ServerBuilder& builder);

 private:
  const bool on_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_REFLECTION_H_

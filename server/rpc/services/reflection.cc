#include "server/rpc/services/reflection.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/support/method_handler.h>

#include <algorithm>
#include <string>
#include <utility>

#include "server/rpc/services/method_names.h"

namespace normd::rpc {
namespace {

// gRPC 1.51 lists a service by the names of its methods that are not left to the generic handler. So each service is
// registered with one method, without a name, which is answered UNIMPLEMENTED by the threads that reflection brings
// along; its real ones go to the dispatcher.
class Listed : public grpc::Service {
 public:
  explicit Listed(const std::string& service) : path_(MethodPath(service, "")) {
    auto handler = std::make_unique<grpc::internal::UnknownMethodHandler>("a method without a name");
    auto method = std::make_unique<grpc::internal::RpcServiceMethod>(
        path_.c_str(), grpc::internal::RpcMethod::NORMAL_RPC, handler.release());
    AddMethod(method.release());
  }

 private:
  const std::string path_;  // gRPC keeps the pointer
};

// The reflection library adds its plugin to every server of a process that links it. This makes it this server's
// choice.
class ReflectionOption : public grpc::ServerBuilderOption {
 public:
  explicit ReflectionOption(bool on) : on_(on) {}

  void UpdateArguments(grpc::ChannelArguments*) override {}

  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    auto reflection = std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>();
    const auto same = [&reflection](const auto& plugin) { return plugin->name() == reflection->name(); };
    plugins->erase(std::remove_if(plugins->begin(), plugins->end(), same), plugins->end());
    if (on_) plugins->push_back(std::move(reflection));
  }

 private:
  const bool on_;
};

}  // namespace

Reflection::Reflection(bool on) : on_(on) {
  if (!on) return;
  for (const std::string& service : ServiceNames()) services_.push_back(std::make_unique<Listed>(service));
}

Reflection::~Reflection() = default;

void Reflection::AddTo(grpc::ServerBuilder& builder) {
  for (const auto& service : services_) builder.RegisterService(service.get());
  builder.SetOption(std::make_unique<ReflectionOption>(on_));
}

}  // namespace normd::rpc

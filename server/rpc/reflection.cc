#include "server/rpc/reflection.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/support/method_handler.h>

#include <algorithm>
#include <utility>

#include "grpc/health/v1/health.grpc.pb.h"
#include "normd/v1/normalizer.grpc.pb.h"
#include "normd/v1/sessions.grpc.pb.h"
#include "normd/v1/shared_memory.grpc.pb.h"

namespace normd::rpc {
namespace {

// Base with all of its methods left to the generic handler.
template <typename Base, template <typename> class... Generic>
struct Wrap {
  using Type = Base;
};
template <typename Base, template <typename> class First, template <typename> class... Rest>
struct Wrap<Base, First, Rest...> {
  using Type = First<typename Wrap<Base, Rest...>::Type>;
};

using N = v1::Normalizer;
using NormalizerService = Wrap<N::Service, N::WithGenericMethod_Normalize, N::WithGenericMethod_BatchNormalize,
                               N::WithGenericMethod_NormalizeStream, N::WithGenericMethod_ComputeMoments,
                               N::WithGenericMethod_Describe>::Type;

using S = v1::Sessions;
using SessionsService =
    Wrap<S::Service, S::WithGenericMethod_CreateSession, S::WithGenericMethod_GetSession,
         S::WithGenericMethod_ListSessions, S::WithGenericMethod_UpdateSession, S::WithGenericMethod_ResetSession,
         S::WithGenericMethod_ForkSession, S::WithGenericMethod_DeleteSession, S::WithGenericMethod_CommitMoments,
         S::WithGenericMethod_ExportSession, S::WithGenericMethod_ImportSession>::Type;

using M = v1::SharedMemory;
using SharedMemoryService = Wrap<M::Service, M::WithGenericMethod_RegisterRegion>::Type;

using H = grpc::health::v1::Health;
using HealthService = Wrap<H::Service, H::WithGenericMethod_Check, H::WithGenericMethod_Watch>::Type;

// gRPC 1.51 lists a service only if one of its methods is not generic. So each gets one more, without a name, which is
// answered UNIMPLEMENTED by the threads that reflection brings along.
template <typename Service>
class Listed : public Service {
 public:
  // `path` is "/<service>/", a literal: gRPC keeps the pointer.
  explicit Listed(const char* path) {
    auto handler = std::make_unique<grpc::internal::UnknownMethodHandler>("a method without a name");
    auto method = std::make_unique<grpc::internal::RpcServiceMethod>(path, grpc::internal::RpcMethod::NORMAL_RPC,
                                                                     handler.release());
    this->AddMethod(method.release());
  }
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
  services_.push_back(std::make_unique<Listed<NormalizerService>>("/normd.v1.Normalizer/"));
  services_.push_back(std::make_unique<Listed<SessionsService>>("/normd.v1.Sessions/"));
  services_.push_back(std::make_unique<Listed<SharedMemoryService>>("/normd.v1.SharedMemory/"));
  services_.push_back(std::make_unique<Listed<HealthService>>("/grpc.health.v1.Health/"));
}

Reflection::~Reflection() = default;

void Reflection::AddTo(grpc::ServerBuilder& builder) {
  for (const auto& service : services_) builder.RegisterService(service.get());
  builder.SetOption(std::make_unique<ReflectionOption>(on_));
}

}  // namespace normd::rpc

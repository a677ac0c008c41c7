#include "server/rpc/services/method_names.h"

#include <google/protobuf/descriptor.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/sessions.pb.h"
#include "normd/v1/shared_memory.pb.h"

namespace normd::rpc {
namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::ServiceDescriptor;

// The files that declare the services of normd, each found through one of its messages.
std::vector<const FileDescriptor*> OwnFiles() {
  return {v1::NormalizeRequest::descriptor()->file(), v1::Session::descriptor()->file(),
          v1::RegisterRegionRequest::descriptor()->file()};
}

std::vector<const ServiceDescriptor*> ServicesIn(const std::vector<const FileDescriptor*>& files) {
  std::vector<const ServiceDescriptor*> services;
  for (const FileDescriptor* file : files) {
    for (int i = 0; i < file->service_count(); ++i) services.push_back(file->service(i));
  }
  return services;
}

std::vector<const ServiceDescriptor*> AllServices() {
  std::vector<const FileDescriptor*> files = OwnFiles();
  files.push_back(grpc::health::v1::HealthCheckRequest::descriptor()->file());
  return ServicesIn(files);
}

std::vector<std::string> PathsOf(const std::vector<const ServiceDescriptor*>& services) {
  std::vector<std::string> paths;
  for (const ServiceDescriptor* service : services) {
    for (int i = 0; i < service->method_count(); ++i) {
      paths.push_back(MethodPath(service->full_name(), service->method(i)->name()));
    }
  }
  return paths;
}

}  // namespace

std::string MethodPath(std::string_view service, std::string_view method) {
  return absl::StrCat("/", std::string(service), "/", std::string(method));
}

std::vector<std::string> CountedMethods() {
  std::vector<std::string> methods;
  for (const ServiceDescriptor* service : ServicesIn(OwnFiles())) {
    for (int i = 0; i < service->method_count(); ++i) {
      methods.push_back(absl::StrCat(service->name(), "/", service->method(i)->name()));
    }
  }
  return methods;
}

std::vector<std::string> AllMethodPaths() {
  std::vector<const ServiceDescriptor*> services = AllServices();
  for (const google::protobuf::Descriptor* request :
       {grpc::reflection::v1::ServerReflectionRequest::descriptor(),
        grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()}) {
    services.push_back(request->file()->service(0));
  }
  return PathsOf(services);
}

absl::Status CheckRoutes(const std::vector<Route>& routes) {
  const std::vector<std::string> paths = PathsOf(AllServices());
  std::set<std::string> declared(paths.begin(), paths.end());
  for (const Route& route : routes) {
    if (declared.erase(route.path) == 0) {
      return absl::InternalError(absl::StrCat(route.path, " is no method of the .proto files, or is there twice"));
    }
  }
  if (declared.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(*declared.begin(), " has no route"));
}

}  // namespace normd::rpc

#include "server/rpc/services/reflection.h"

#include <google/protobuf/descriptor.pb.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/rpc/codec/message.h"
#include "server/rpc/edge/status.h"
#include "server/rpc/services/method_names.h"

namespace normd::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
// Messages of both versions are parsed and written as those of v1, because v1alpha's have the same fields with the same
// numbers. A test checks this.
using grpc::reflection::v1::ExtensionNumberResponse;
using grpc::reflection::v1::ExtensionRequest;
using grpc::reflection::v1::FileDescriptorResponse;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;
using ServiceList = std::set<std::string>;

// A request has little more than one name. Protobuf's search for an unknown name takes time that grows with the square
// of the name's length: 0.2 ms for 1 KiB of one-letter parts, 40 ms for 16 KiB.
constexpr int64_t kMaxRequestBytes = 1 << 10;

absl::Status UnknownError(std::string_view field, std::string_view value) {
  return MakeError(ServerReason("DESCRIPTOR_NOT_FOUND"),
                   {.field = std::string(field), .value = std::string(value), .limit = "known to this server"},
                   Concat("is \"", value, "\", which this server does not know"));
}

// Adds `file`, followed by everything that it imports, directly or indirectly, as tools expect.
void AddWithImports(const FileDescriptor& file, std::set<const FileDescriptor*>* added,
                    FileDescriptorResponse* response) {
  if (!added->insert(&file).second) return;
  google::protobuf::FileDescriptorProto message;
  file.CopyTo(&message);
  message.SerializeToString(response->add_file_descriptor_proto());
  for (int i = 0; i < file.dependency_count(); ++i) AddWithImports(*file.dependency(i), added, response);
}

// Answers a request for a file, which is null if there is none; `field` and `value` are those of the request.
absl::Status AnswerFile(const FileDescriptor* file, std::string_view field, std::string_view value,
                        ServerReflectionResponse* response) {
  if (file == nullptr) return UnknownError(field, value);
  std::set<const FileDescriptor*> added;
  AddWithImports(*file, &added, response->mutable_file_descriptor_response());
  return absl::OkStatus();
}

absl::Status AnswerExtension(const DescriptorPool& pool, const ExtensionRequest& request,
                             ServerReflectionResponse* response) {
  const Descriptor* const type = pool.FindMessageTypeByName(request.containing_type());
  if (type == nullptr) return UnknownError("file_containing_extension.containing_type", request.containing_type());
  const FieldDescriptor* const extension = pool.FindExtensionByNumber(type, request.extension_number());
  return AnswerFile(extension == nullptr ? nullptr : extension->file(), "file_containing_extension.extension_number",
                    Concat(request.extension_number()), response);
}

absl::Status AnswerExtensionNumbers(const DescriptorPool& pool, const std::string& name,
                                    ServerReflectionResponse* response) {
  const Descriptor* const type = pool.FindMessageTypeByName(name);
  if (type == nullptr) return UnknownError("all_extension_numbers_of_type", name);
  std::vector<const FieldDescriptor*> extensions;
  pool.FindAllExtensions(type, &extensions);
  ExtensionNumberResponse& numbers = *response->mutable_all_extension_numbers_response();
  numbers.set_base_type_name(name);
  for (const FieldDescriptor* extension : extensions) numbers.add_extension_number(extension->number());
  return absl::OkStatus();
}

absl::Status Answer(const ServerReflectionRequest& request, const DescriptorPool& pool, const ServiceList& services,
                    ServerReflectionResponse* response) {
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      return AnswerFile(pool.FindFileByName(request.file_by_filename()), "file_by_filename", request.file_by_filename(),
                        response);
    case ServerReflectionRequest::kFileContainingSymbol:
      return AnswerFile(pool.FindFileContainingSymbol(request.file_containing_symbol()), "file_containing_symbol",
                        request.file_containing_symbol(), response);
    case ServerReflectionRequest::kFileContainingExtension:
      return AnswerExtension(pool, request.file_containing_extension(), response);
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      return AnswerExtensionNumbers(pool, request.all_extension_numbers_of_type(), response);
    case ServerReflectionRequest::kListServices:
      for (const std::string& name : services)
        response->mutable_list_services_response()->add_service()->set_name(name);
      return absl::OkStatus();
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  return MissingError("message_request", "one of its kinds of request");
}

// One ServerReflectionInfo call. The next request is read when the transport has taken the reply to the one before.
class ReflectionStream : public std::enable_shared_from_this<ReflectionStream> {
 public:
  ReflectionStream(const RouteContext* context, std::shared_ptr<const ServiceList> services,
                   std::shared_ptr<RpcCall> stream)
      : context_(context), services_(std::move(services)), stream_(std::move(stream)) {}

  void ReadNext() {
    stream_->ReadSize([self = shared_from_this()](std::optional<int64_t> message_bytes) {
      if (const absl::Status fits = CheckSize(message_bytes.value_or(0)); !fits.ok())
        return self->stream_->Finish(fits);
      self->ReadMessage();
    });
  }

 private:
  void ReadMessage() {
    stream_->Read([self = shared_from_this()](std::optional<MessageBytes> message) {
      if (!message.has_value()) return self->stream_->Finish(absl::OkStatus());
      if (const absl::Status status = self->Respond(*message); !status.ok()) self->stream_->Finish(status);
    });
  }

  static absl::Status CheckSize(int64_t message_bytes) {
    if (message_bytes <= kMaxRequestBytes) return absl::OkStatus();
    return AmountError("message", Concat(message_bytes, " bytes"), Concat("at most ", kMaxRequestBytes),
                       ServerReason("MESSAGE_TOO_LARGE"));
  }

  // Replies to one request. An error ends the stream.
  absl::Status Respond(const MessageBytes& message) {
    NORMD_RETURN_IF_ERROR(CheckSize(message.size_bytes()));
    ServerReflectionRequest request;
    NORMD_RETURN_IF_ERROR(ParseInto(message, &request));
    MessageBytes reply =
        Serialize(ReplyToReflection(std::move(request), *DescriptorPool::generated_pool(), *services_));
    NORMD_ASSIGN_OR_RETURN(reply_memory_,
                           context_->admission->Reserve(reply.size_bytes(), [this] { return NameOf(*stream_); }));
    stream_->Write(std::move(reply), [self = shared_from_this()] {
      self->reply_memory_ = Reservation();
      self->ReadNext();
    });
    return absl::OkStatus();
  }

  const RouteContext* const context_;
  const std::shared_ptr<const ServiceList> services_;
  const std::shared_ptr<RpcCall> stream_;
  Reservation reply_memory_;  // of the reply that is being written; used by one callback at a time
};

// "/normd.v1.Normalizer/Normalize" -> "normd.v1.Normalizer"
std::string ServiceOf(const Route& route) { return route.path.substr(1, route.path.rfind('/') - 1); }

}  // namespace

ServerReflectionResponse ReplyToReflection(ServerReflectionRequest request, const DescriptorPool& pool,
                                           const ServiceList& services) {
  ServerReflectionResponse response;
  if (const absl::Status status = Answer(request, pool, services, &response); !status.ok()) {
    response.mutable_error_response()->set_error_code(static_cast<int>(status.code()));  // gRPC's codes are the same
    response.mutable_error_response()->set_error_message(std::string(status.message()));
  }
  response.set_valid_host(request.host());
  *response.mutable_original_request() = std::move(request);
  return response;
}

std::vector<Route> ReflectionRoutes(const RouteContext* context, const std::vector<Route>& served) {
  const auto services = std::make_shared<ServiceList>();
  for (const Route& route : served) services->insert(ServiceOf(route));
  std::vector<Route> routes;
  for (const Descriptor* message :
       {ServerReflectionRequest::descriptor(), grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()}) {
    const google::protobuf::ServiceDescriptor& service = *message->file()->service(0);
    services->insert(service.full_name());
    routes.push_back({.path = MethodPath(service.full_name(), service.method(0)->name()),
                      .start = [context, services](std::shared_ptr<RpcCall> stream) {
                        std::make_shared<ReflectionStream>(context, services, std::move(stream))->ReadNext();
                      }});
  }
  return routes;
}

}  // namespace normd::rpc

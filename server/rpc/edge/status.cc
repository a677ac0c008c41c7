#include "server/rpc/edge/status.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "kernels/base/errors.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/base/hidden_text.h"

namespace normd::rpc {
namespace {

// Clients accept 8 KiB of metadata by default, which must hold the details in base64 and the percent-encoded message.
constexpr size_t kMaxMessageBytes = 1024;
constexpr size_t kMaxDetailBytes = 256;
constexpr absl::Duration kRetryDelay = absl::Milliseconds(100);

// Returns at most `limit` bytes of `text`, cut between characters. Fields of messages must be UTF-8, which a path or a
// header of a stranger need not be: it is written with escapes then.
std::string Cut(std::string_view text, size_t limit) {
  if (!IsUtf8(text)) return Cut(absl::CHexEscape({text.data(), text.size()}), limit);
  if (text.size() <= limit) return std::string(text);
  size_t end = limit - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

// Does what Any::PackFrom does, but serialises deterministically: maps are written in the order of their keys.
void AddDetail(const google::protobuf::Message& detail, google::rpc::Status* message) {
  google::protobuf::Any* const any = message->add_details();
  any->set_type_url("type.googleapis.com/" + detail.GetTypeName());
  google::protobuf::io::StringOutputStream bytes(any->mutable_value());
  google::protobuf::io::CodedOutputStream coded(&bytes);
  coded.SetSerializationDeterministic(true);
  detail.SerializeToCodedStream(&coded);
}

void AddErrorInfo(const absl::Status& status, const std::optional<ErrorDetail>& detail, google::rpc::Status* message) {
  google::rpc::ErrorInfo info;
  info.set_domain("normd");
  info.set_reason(absl::StatusCodeToString(status.code()));
  if (detail.has_value()) {
    info.set_reason(detail->reason);
    (*info.mutable_metadata())["field"] = Cut(detail->field, kMaxDetailBytes);
    (*info.mutable_metadata())["value"] = Cut(detail->value, kMaxDetailBytes);
    (*info.mutable_metadata())["limit"] = Cut(detail->limit, kMaxDetailBytes);
  }
  AddDetail(info, message);
}

void AddBadRequest(const ErrorDetail& detail, google::rpc::Status* message) {
  google::rpc::BadRequest bad_request;
  auto* violation = bad_request.add_field_violations();
  violation->set_field(Cut(detail.field, kMaxDetailBytes));
  violation->set_description(Cut(message->message(), kMaxDetailBytes));
  AddDetail(bad_request, message);
}

void AddRetryInfo(google::rpc::Status* message) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(kRetryDelay)));
  AddDetail(info, message);
}

// The type of the resource that a NOT_FOUND names.
std::string_view ResourceType(const ErrorDetail& detail) {
  if (detail.reason == ServerReason("REGION_NOT_FOUND").name()) return "normd.v1.SharedRange.region";
  if (detail.reason == ServerReason("OBJECT_NOT_FOUND").name()) return "normd.v1.RegisterRegionRequest.posix_name";
  if (detail.reason == ServerReason("SERVICE_UNKNOWN").name()) return "grpc.health.v1.service";
  return "normd.v1.Session";
}

void AddResourceInfo(const ErrorDetail& detail, google::rpc::Status* message) {
  google::rpc::ResourceInfo info;
  info.set_resource_type(std::string(ResourceType(detail)));
  info.set_resource_name(Cut(detail.value, kMaxDetailBytes));
  info.set_description(Cut(message->message(), kMaxDetailBytes));
  AddDetail(info, message);
}

}  // namespace

google::rpc::Status ToMessage(const absl::Status& status) {
  google::rpc::Status message;
  if (status.ok()) return message;
  message.set_code(static_cast<int>(status.code()));
  message.set_message(Cut(std::string(status.message()), kMaxMessageBytes));
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  AddErrorInfo(status, detail, &message);
  if (detail.has_value() && absl::IsInvalidArgument(status)) AddBadRequest(*detail, &message);
  if (detail.has_value() && absl::IsNotFound(status)) AddResourceInfo(*detail, &message);
  if (MayPassLater(status)) AddRetryInfo(&message);
  return message;
}

google::rpc::Status ToShortMessage(const absl::Status& status, size_t max_message_bytes) {
  google::rpc::Status message;
  message.set_code(static_cast<int>(status.code()));
  message.set_message(Cut(std::string_view(status.message().data(), status.message().size()), max_message_bytes));
  return message;
}

RpcStatus ToRpcStatus(const absl::Status& status) {
  if (status.ok()) return {};
  const google::rpc::Status message = ToMessage(status);
  return {.code = message.code(), .message = message.message(), .details_bin = message.SerializeAsString()};
}

}  // namespace normd::rpc

#include "client/cpp/status.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/rpc/error_details.pb.h"

namespace normd::client {
namespace {

constexpr absl::string_view kDetailsUrl = "type.googleapis.com/google.rpc.Status";
constexpr absl::string_view kRequestIdUrl = "normd/request-id";

void ReadDetail(const google::protobuf::Any& any, ErrorInfo& out) {
  if (google::rpc::BadRequest bad; any.Is<google::rpc::BadRequest>() && any.UnpackTo(&bad)) {
    if (bad.field_violations_size() == 0) return;
    out.field = bad.field_violations(0).field();
    out.description = bad.field_violations(0).description();
  } else if (google::rpc::ErrorInfo info; any.Is<google::rpc::ErrorInfo>() && any.UnpackTo(&info)) {
    out.reason = info.reason();
    if (const auto it = info.metadata().find("field"); it != info.metadata().end()) out.field = it->second;
    if (const auto it = info.metadata().find("value"); it != info.metadata().end()) out.value = it->second;
    if (const auto it = info.metadata().find("limit"); it != info.metadata().end()) out.limit = it->second;
  } else if (google::rpc::RetryInfo retry; any.Is<google::rpc::RetryInfo>() && any.UnpackTo(&retry)) {
    out.retry_delay = absl::Seconds(retry.retry_delay().seconds()) + absl::Nanoseconds(retry.retry_delay().nanos());
  } else if (google::rpc::ResourceInfo resource; any.Is<google::rpc::ResourceInfo>() && any.UnpackTo(&resource)) {
    out.resource = resource.resource_name();
  }
}

}  // namespace

absl::Status MakeStatus(int code, absl::string_view message, absl::string_view details) {
  absl::Status status(static_cast<absl::StatusCode>(code), message);
  if (!status.ok() && !details.empty()) status.SetPayload(kDetailsUrl, absl::Cord(details));
  return status;
}

absl::Status ToStatus(const google::rpc::Status& proto) {
  return MakeStatus(proto.code(), proto.message(), proto.details_size() == 0 ? "" : proto.SerializeAsString());
}

std::string ToText(const absl::Status& status) {
  const std::string code = absl::StatusCodeToString(status.code());
  std::string text = status.message().empty() ? code : absl::StrCat(code, ": ", status.message());
  std::replace_if(
      text.begin(), text.end(), [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }, '?');
  return text;
}

absl::Status WithRequestId(absl::Status status, absl::string_view id) {
  status.SetPayload(kRequestIdUrl, absl::Cord(id));
  return status;
}

std::string GetRequestId(const absl::Status& status) {
  return std::string(status.GetPayload(kRequestIdUrl).value_or(absl::Cord()));
}

std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status) {
  const auto payload = status.GetPayload(kDetailsUrl);
  google::rpc::Status proto;
  if (!payload || !proto.ParseFromString(std::string(*payload))) return std::nullopt;
  ErrorInfo out;
  for (const google::protobuf::Any& any : proto.details()) ReadDetail(any, out);
  return out;
}

}  // namespace normd::client

#include "server/rpc/http2/reply_headers.h"

#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "kernels/base/strings.h"
#include "server/rpc/http2/grpc_headers.h"

namespace normd::rpc::http2 {
namespace {

using Fields = absl::InlinedVector<nghttp2_nv, 8>;

// The texts must live until the fields are submitted, which copies them.
void Add(Fields& fields, std::string_view name, std::string_view value) {
  // nghttp2's type has no const, but it changes neither text.
  fields.push_back({.name = reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                    .value = reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())),
                    .namelen = name.size(),
                    .valuelen = value.size(),
                    .flags = NGHTTP2_NV_FLAG_NONE});
}

// As Add, for texts that live for ever.
void AddConstant(Fields& fields, std::string_view name, std::string_view value) {
  Add(fields, name, value);
  fields.back().flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
}

void AddHead(Fields& fields) {
  AddConstant(fields, ":status", "200");
  AddConstant(fields, "content-type", "application/grpc");
}

// Submits `fields` followed by those of the end, by `submit`.
template <typename Submit>
void WithEnd(Fields fields, const RpcEnd& end, Submit submit) {
  const std::string code = NumberText(end.status.code);
  const std::string message = PercentEncode(end.status.message);
  const std::string details = EncodeBinary(end.status.details_bin);
  Add(fields, "grpc-status", code);
  if (!message.empty()) Add(fields, "grpc-message", message);
  if (!details.empty()) Add(fields, "grpc-status-details-bin", details);
  for (const auto& [key, value] : end.trailers) Add(fields, key, value);
  submit(fields);
}

}  // namespace

void SubmitReply(nghttp2_session* session, int32_t stream_id, const nghttp2_data_provider& body) {
  Fields fields;
  AddHead(fields);
  nghttp2_submit_response(session, stream_id, fields.data(), fields.size(), &body);
}

void SubmitTrailers(nghttp2_session* session, int32_t stream_id, const RpcEnd& end) {
  WithEnd(Fields(), end, [session, stream_id](const Fields& fields) {
    nghttp2_submit_trailer(session, stream_id, fields.data(), fields.size());
  });
}

void SubmitTrailersOnly(nghttp2_session* session, int32_t stream_id, const RpcEnd& end) {
  Fields head;
  AddHead(head);
  WithEnd(std::move(head), end, [session, stream_id](const Fields& fields) {
    nghttp2_submit_response(session, stream_id, fields.data(), fields.size(), nullptr);
  });
}

void SubmitHttpStatus(nghttp2_session* session, int32_t stream_id, int status) {
  const std::string text = NumberText(status);
  Fields fields;
  Add(fields, ":status", text);
  nghttp2_submit_response(session, stream_id, fields.data(), fields.size(), nullptr);
}

}  // namespace normd::rpc::http2

#include "tests/bench/datapath/exchange.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <cstring>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/datapath/echo.pb.h"
#include "tests/bench/datapath/rms_rows.h"

namespace normd::bench {

grpc::ByteBuffer Serialize(const google::protobuf::Message& message) {
  grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

bool Parse(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  grpc::ByteBuffer readable(bytes);  // shares the slices; the reader wants a pointer to a mutable one
  grpc::ProtoBufferReader reader(&readable);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

namespace {

absl::StatusOr<std::string> TextOf(const grpc::ByteBuffer& bytes) {
  grpc::Slice slice;
  if (!bytes.DumpToSingleSlice(&slice).ok()) return absl::InternalError("a reply that cannot be read");
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

grpc::ByteBuffer NormdRequest(bool stream, const std::string& x) {
  if (!stream) return Serialize(MakeNormalizeRequest(x));
  v1::StreamRequest request;
  request.set_sequence(1);
  *request.mutable_call() = MakeNormalizeRequest(x);
  return Serialize(request);
}

grpc::ByteBuffer FloatsRequestOf(const std::string& x) {
  FloatsRequest request;
  request.mutable_x()->Resize(static_cast<int>(x.size() / sizeof(float)), 0);
  std::memcpy(request.mutable_x()->mutable_data(), x.data(), x.size());
  return Serialize(request);
}

grpc::ByteBuffer BytesRequestOf(const std::string& x) {
  BytesRequest request;
  request.set_x(x);
  return Serialize(request);
}

// y of normd's reply.
absl::StatusOr<std::string> NormdResult(bool stream, const grpc::ByteBuffer& reply) {
  v1::StreamResponse response;
  const bool ok = stream ? Parse(reply, &response) : Parse(reply, response.mutable_reply());
  if (response.has_error()) return absl::InternalError(response.error().message());
  if (!ok || response.reply().outputs_size() != 1) return absl::InternalError("no output");
  return response.reply().outputs(0).tensor().data();
}

absl::StatusOr<std::string> ResultOf(std::string_view kind, bool stream, const grpc::ByteBuffer& reply) {
  if (kind == "echo") return TextOf(reply);
  if (kind == "normd") return NormdResult(stream, reply);
  if (kind == "floats") {
    FloatsReply floats;
    if (!Parse(reply, &floats)) return absl::InternalError("a reply that cannot be read");
    return std::string(reinterpret_cast<const char*>(floats.y().data()), floats.y_size() * sizeof(float));
  }
  BytesReply bytes;
  if (!Parse(reply, &bytes)) return absl::InternalError("a reply that cannot be read");
  return bytes.y();
}

}  // namespace

absl::StatusOr<Rows> MakeRows(int64_t bytes) {
  Rows rows;
  rows.x.resize(static_cast<size_t>(bytes));
  rows.y.resize(rows.x.size());
  uint32_t state = 1;
  for (size_t i = 0; i < rows.x.size(); i += sizeof(float)) {
    state = state * 1664525 + 1013904223;  // Numerical Recipes' generator
    const float value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-30F;
    std::memcpy(rows.x.data() + i, &value, sizeof(value));
  }
  NORMD_RETURN_IF_ERROR(RmsRows().Run(rows.x.data(), bytes, rows.y.data()));
  return rows;
}

v1::NormalizeRequest MakeRequestHead(int64_t bytes) {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  request.mutable_x()->set_dtype(v1::DTYPE_F32);
  request.mutable_x()->add_shape(bytes / kRowBytes);
  request.mutable_x()->add_shape(kRowElements);
  return request;
}

v1::NormalizeRequest MakeNormalizeRequest(const std::string& x) {
  v1::NormalizeRequest request = MakeRequestHead(static_cast<int64_t>(x.size()));
  request.mutable_x()->set_data(x);
  return request;
}

Target MakeTarget(std::string_view kind, bool stream, const Rows& rows) {
  Target target;
  target.stream = stream;
  target.min_reply_bytes = rows.y.size();
  if (kind == "echo" || kind == "normd") {
    target.method = "/normd.v1.Normalizer/Normalize";
    target.requests = {NormdRequest(stream, rows.x)};
  } else if (kind == "floats") {
    target.method = "/normd.bench.Floats/Normalize";
    target.requests = {FloatsRequestOf(rows.x)};
  } else {
    target.method = "/normd.bench.Bytes/Normalize";
    target.requests = {BytesRequestOf(rows.x)};
  }
  if (stream) target.method += "Stream";
  return target;
}

absl::Status CheckReply(std::string_view kind, bool stream, const Rows& rows, const grpc::ByteBuffer& reply) {
  NORMD_ASSIGN_OR_RETURN(const std::string result, ResultOf(kind, stream, reply));
  std::string expected = rows.y;
  if (kind == "echo") {
    NORMD_ASSIGN_OR_RETURN(expected, TextOf(MakeTarget(kind, stream, rows).requests.front()));
  }
  if (result == expected) return absl::OkStatus();
  return absl::InternalError(Concat("a reply of ", result.size(), " bytes that is not the right one"));
}

std::string BytesText(int64_t bytes) {
  if (bytes % (1 << 20) == 0) return Concat(bytes >> 20, " MiB");
  return Concat(bytes >> 10, " KiB");
}

}  // namespace normd::bench

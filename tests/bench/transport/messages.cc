#include "tests/bench/transport/messages.h"

#include "kernels/base/strings.h"
#include "normd/v1/normalizer.pb.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/rms_rows.h"

namespace normd::bench {
namespace {

grpc::ByteBuffer EchoRequest(int64_t bytes) {
  const grpc::Slice slice(std::string(static_cast<size_t>(bytes), 'x'));
  return {&slice, 1};
}

grpc::ByteBuffer NormdRequest(bool stream, int64_t bytes) {
  v1::NormalizeRequest request = MakeRequestHead(bytes);
  if (bytes < kRowBytes) {
    request.mutable_x()->set_shape(0, 1);
    request.mutable_x()->set_shape(1, bytes / static_cast<int64_t>(sizeof(float)));
  }
  request.mutable_x()->set_data(std::string(static_cast<size_t>(bytes), '\x3F'));  // the f32 0.747
  if (!stream) return Serialize(request);
  v1::StreamRequest message;
  message.set_sequence(1);
  *message.mutable_call() = std::move(request);
  return Serialize(message);
}

}  // namespace

Target TargetOf(std::string_view service, bool stream, int64_t bytes) {
  Target target;
  target.method = "/normd.v1.Normalizer/Normalize";
  if (stream) target.method += "Stream";
  target.stream = stream;
  target.requests = {service == "echo" ? EchoRequest(bytes) : NormdRequest(stream, bytes)};
  target.min_reply_bytes = static_cast<size_t>(bytes);
  return target;
}

std::string SizeText(int64_t bytes) { return bytes < 1024 ? Concat(bytes, " B") : BytesText(bytes); }

}  // namespace normd::bench

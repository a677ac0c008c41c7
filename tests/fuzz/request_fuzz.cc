// Any bytes as a request message: parse, decode, plan, execute, for Normalize, for a stream's defaults and for
// ComputeMoments (whose fields carry the same numbers), against a spec of the request's own or a session.
// Whatever the bytes are, there is one answer, and an OK one has the bytes that x has.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/cpu/backend.h"
#include "normd/v1/normalizer.pb.h"
#include "server/base/clock.h"
#include "server/engine/engine.h"
#include "server/rpc/codec/decode_call.h"
#include "server/rpc/codec/message.h"
#include "server/session/memory/memory_store.h"

namespace normd {
namespace {

// A bug is an abort that libFuzzer reports with the input.
void Require(bool condition) {
  if (!condition) std::abort();
}

// In two slices: messages come from the transport in pieces.
MessageBytes InPieces(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  MessageBytes pieces(Slice::Copy(bytes.substr(0, size / 2)));
  pieces.Append(Slice::Copy(bytes.substr(size / 2)));
  return pieces;
}

template <typename Message>
std::optional<rpc::Parsed<Message>> ParseMessage(const MessageBytes& bytes) {
  absl::StatusOr<rpc::Parsed<Message>> message = rpc::Parse<Message>(bytes, rpc::Reservation());
  if (!message.ok()) return std::nullopt;
  return *std::move(message);
}

void AddSession(SessionStore& store) {
  Session session;
  session.id = "s";
  session.spec.attributes = BatchNormSpec{.layout = Layout::kChannelsLast};
  session.num_channels = 2;
  session.parameters = std::make_shared<OwnedParameters>();
  store.Create(std::move(session), [](const absl::StatusOr<SessionPtr>& created) { Require(created.ok()); });
}

absl::StatusOr<CallReply> Run(Engine& engine, Call call) {
  std::promise<absl::StatusOr<CallReply>> promise;  // a second answer would throw, so abort
  std::future<absl::StatusOr<CallReply>> reply = promise.get_future();
  engine.Submit(std::move(call), [&](absl::StatusOr<CallReply> result) { promise.set_value(std::move(result)); });
  return reply.get();
}

// Bytes of y as the request says, before anything checked it.
size_t BytesOfX(const v1::NormalizeRequest& request, rpc::TensorSource* tensors) {
  const auto x = tensors->Find(request.x(), "x", /*may_be_scattered=*/true);
  return x.ok() ? static_cast<size_t>(x->size_bytes) : 0;
}

void Normalize(const MessageBytes& bytes, Engine& engine) {
  const auto request = ParseMessage<v1::NormalizeRequest>(bytes);
  if (!request.has_value()) return;
  absl::StatusOr<Call> call = rpc::DecodeCall({request->message, request->tensors}, {}, /*tenant=*/"");
  if (call.ok()) {
    const absl::StatusOr<CallReply> reply = Run(engine, *std::move(call));
    for (size_t i = 0; reply.ok() && i < reply->outputs.size(); ++i) {
      const OutputTensor& output = reply->outputs[i];
      if (output.kind == OutputKind::kY) {
        Require(output.bytes.size_bytes() == BytesOfX(**request, request->tensors));
      }
    }
  }
  if (rpc::CheckDefaults({request->message, request->tensors}).ok()) {
    // As the defaults of a call that brings x alone.
    v1::NormalizeRequest own;
    *own.mutable_x() = (*request)->x();
    call = rpc::DecodeCall({&own, request->tensors}, {request->message, request->tensors}, /*tenant=*/"");
    if (call.ok()) Run(engine, *std::move(call)).IgnoreError();
  }
}

void ComputeMoments(const MessageBytes& bytes, Engine& engine) {
  const auto request = ParseMessage<v1::ComputeMomentsRequest>(bytes);
  if (!request.has_value()) return;
  absl::StatusOr<Call> call = rpc::DecodeComputeMoments({request->message, request->tensors}, /*tenant=*/"");
  if (call.ok()) Run(engine, *std::move(call)).IgnoreError();
}

}  // namespace
}  // namespace normd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<normd::Backend> backend = normd::MakeCpuBackend({.threads = 1});
  static normd::DeviceScheduler scheduler(backend.get());
  normd::SystemClock clock;
  normd::MemoryStore store({}, &clock);
  normd::AddSession(store);
  normd::Resources resources;
  normd::Engine engine(&scheduler, &store, &resources);
  const normd::MessageBytes bytes = normd::InPieces(data, size);
  normd::Normalize(bytes, engine);
  normd::ComputeMoments(bytes, engine);
  return 0;
}

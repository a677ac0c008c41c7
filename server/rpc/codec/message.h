// Messages between slices and protobuf: parses messages onto an arena, and writes them with tensor bytes passed
// by reference.
// In the path: directly above RpcCall, for requests and for replies.
// Threads: the types are thread-compatible; the functions are pure.
#ifndef NORMD_SERVER_RPC_CODEC_MESSAGE_H_
#define NORMD_SERVER_RPC_CODEC_MESSAGE_H_

#include <google/protobuf/arena.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/status_macros.h"
#include "normd/v1/normalizer.pb.h"
#include "proto/wire/layout.h"
#include "server/base/buffer.h"
#include "server/base/slice.h"
#include "server/rpc/codec/tensor_source.h"
#include "server/rpc/edge/admission.h"

namespace normd::rpc {

// Memory reserved for one request: the received message plus the outputs and scratch of its calls.
class RequestMemory {
 public:
  explicit RequestMemory(Reservation reservation)
      : reservation_(std::move(reservation)), message_(reservation_.bytes() / kBytesHeldPerMessageByte) {}

  // Counts `bytes` more of outputs and scratch, and grows the reservation if they exceed it. Returns RESOURCE_EXHAUSTED
  // when there is no room.
  absl::Status Reserve(int64_t bytes, absl::FunctionRef<CallerName()> caller) {
    made_ += bytes;
    if (message_ + made_ <= reservation_.bytes()) return absl::OkStatus();
    return reservation_.Resize(message_ + made_, caller);
  }

 private:
  Reservation reservation_;
  const int64_t message_;
  int64_t made_ = 0;
};

// A parsed message with its tensors. The message, the tensors and views into them live as long as `owner`.
template <typename T>
struct Parsed {
  const T* message = nullptr;
  TensorSource* tensors = nullptr;
  RequestMemory* memory = nullptr;
  std::shared_ptr<const void> owner;

  const T& operator*() const { return *message; }
  const T* operator->() const { return message; }
};

// The layout of a message whose tensor bytes stay where they were received; null for all other messages.
template <typename T>
inline constexpr const wire::MessageLayout* kLayoutOf = nullptr;
template <>
inline constexpr const wire::MessageLayout* kLayoutOf<v1::NormalizeRequest> = &wire::kNormalizeRequest;
template <>
inline constexpr const wire::MessageLayout* kLayoutOf<v1::BatchNormalizeRequest> = &wire::kBatchNormalizeRequest;
template <>
inline constexpr const wire::MessageLayout* kLayoutOf<v1::StreamRequest> = &wire::kStreamRequest;
template <>
inline constexpr const wire::MessageLayout* kLayoutOf<v1::ComputeMomentsRequest> = &wire::kComputeMomentsRequest;

// A message with tensors as received, in the transport's slices. `split` has the message without its tensors and the
// places of the tensors' bytes; it is absent if only the full parser can read the message.
struct ReceivedMessage {
  MessageBytes whole;
  ReceivedBytes bytes;
  std::optional<wire::SplitMessage> split;
};
// Takes `bytes` apart without copying tensors.
ReceivedMessage Receive(const MessageBytes& bytes, const wire::MessageLayout& layout);
// The slices of `bytes`. ReceiveOnly and ReceivePart take apart the embedded message at `part` of such bytes, leaving
// `whole` empty: ReceiveOnly consumes the bytes, and ReceivePart shares them with other parts.
ReceivedBytes TakeBytes(const MessageBytes& bytes);
ReceivedMessage ReceiveOnly(ReceivedBytes bytes, const wire::Block& part, const wire::MessageLayout& layout);
ReceivedMessage ReceivePart(const ReceivedBytes& bytes, const wire::Block& part, const wire::MessageLayout& layout);

// Parses `bytes`. Returns INVALID_ARGUMENT when they are not a message of `into`'s type, or when the message has more
// than kMaxElements elements.
absl::Status ParseInto(const MessageBytes& bytes, google::protobuf::Message* into);
// Parses a message with tensors in the same way. The tensors' bytes go to `tensors` without a copy, unless only the
// full parser can read the message.
absl::Status ParseInto(ReceivedMessage message, google::protobuf::Message* into, TensorSource* tensors);

// Parses `bytes`, a ReceivedMessage or MessageBytes, with the errors of ParseInto. The result's owner keeps
// `reservation`.
template <typename T, typename Bytes>
absl::StatusOr<Parsed<T>> Parse(Bytes bytes, Reservation reservation) {
  struct Owner {
    explicit Owner(Reservation r) : memory(std::move(r)), arena(Options(first_block)) {}
    static google::protobuf::ArenaOptions Options(char (&block)[1024]) {
      google::protobuf::ArenaOptions options;
      options.initial_block = block;
      options.initial_block_size = sizeof(block);
      return options;
    }
    RequestMemory memory;
    TensorSource tensors;
    alignas(8) char first_block[1024];  // large enough for most messages without their tensors
    google::protobuf::Arena arena;
  };
  auto owner = std::make_shared<Owner>(std::move(reservation));
  T* const message = google::protobuf::Arena::CreateMessage<T>(&owner->arena);
  if constexpr (std::is_same_v<Bytes, ReceivedMessage>) {
    NORMD_RETURN_IF_ERROR(ParseInto(std::move(bytes), message, &owner->tensors));
  } else if constexpr (kLayoutOf<T> != nullptr) {
    NORMD_RETURN_IF_ERROR(ParseInto(Receive(bytes, *kLayoutOf<T>), message, &owner->tensors));
  } else {
    NORMD_RETURN_IF_ERROR(ParseInto(bytes, message));
  }
  TensorSource* const tensors = &owner->tensors;
  RequestMemory* const memory = &owner->memory;
  return Parsed<T>{message, tensors, memory, std::move(owner)};
}

// Finds the value of a varint field without parsing the message; 0 if the field is absent.
uint64_t FindVarintField(const MessageBytes& bytes, int field);

MessageBytes Serialize(const google::protobuf::Message& message);

// The body of a message that is built from the inside out: pieces of text, each followed by a block that is passed by
// reference. Fields are appended in order; the finished body is appended as a field of the enclosing message.
class WireBody {
 public:
  void Append(std::string_view text);
  void Append(WireBody body);
  // Appends a `bytes` field: tag and length, then the block itself without a copy.
  void AppendBytesField(int field, Buffer bytes);
  void AppendBytesField(int field, Slice bytes);
  void AppendVarintField(int field, uint64_t value);
  // Appends the block of a `bytes` field whose tag and length were already appended.
  void AppendBlock(Buffer bytes);
  void AppendBlock(Slice bytes);
  // Appends an embedded message.
  void AppendMessageField(int field, WireBody body);

  size_t size_bytes() const { return size_bytes_; }

  // The text of a body that consists of text and one final block; empty for any other body.
  std::string_view TextBeforeBlock() const;

  MessageBytes ToBytes() &&;

 private:
  struct Piece {
    std::string head;
    Slice block;  // follows the head; may be empty
  };
  std::string& Head();

  std::vector<Piece> pieces_;
  size_t size_bytes_ = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_MESSAGE_H_

// Messages between gRPC's slices and protobuf: parsing onto an arena, writing with tensor bytes passed by reference.
// In the path: directly above Stream, on both sides. Values and pure functions.
#ifndef NORMD_SERVER_RPC_CODEC_MESSAGE_H_
#define NORMD_SERVER_RPC_CODEC_MESSAGE_H_

#include <google/protobuf/arena.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

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
#include "server/rpc/codec/tensor_source.h"
#include "server/rpc/transport/admission.h"

namespace normd::rpc {

// The room of one request: its message, and what its calls make.
class RequestMemory {
 public:
  explicit RequestMemory(Reservation reservation)
      : reservation_(std::move(reservation)), message_(reservation_.bytes() / kBytesHeldPerMessageByte) {}

  // Room for `bytes` more, as far as the reservation was not made for them. RESOURCE_EXHAUSTED when there is none.
  absl::Status Reserve(int64_t bytes, absl::FunctionRef<std::string()> caller) {
    made_ += bytes;
    if (message_ + made_ <= reservation_.bytes()) return absl::OkStatus();
    return reservation_.Resize(message_ + made_, caller);
  }

 private:
  Reservation reservation_;
  const int64_t message_;
  int64_t made_ = 0;
};

// A parsed message with what keeps it and its tensors alive; views into them live as long as `owner`.
template <typename T>
struct Parsed {
  const T* message = nullptr;
  TensorSource* tensors = nullptr;
  RequestMemory* memory = nullptr;
  std::shared_ptr<const void> owner;

  const T& operator*() const { return *message; }
  const T* operator->() const { return message; }
};

// Messages of tensors, whose bytes stay where they were received. Others: null.
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

// A message of tensors as it was received: in the transport's slices, taken apart unless only the full parser can.
struct ReceivedMessage {
  grpc::ByteBuffer whole;
  ReceivedBytes bytes;
  std::optional<wire::SplitMessage> split;
};
ReceivedMessage Receive(const grpc::ByteBuffer& bytes, const wire::MessageLayout& layout);
// The bytes alone, and messages that are fields of theirs, whose `whole` stays empty: one of several, or the only one
// that is wanted.
ReceivedBytes TakeBytes(const grpc::ByteBuffer& bytes);
ReceivedMessage ReceiveOnly(ReceivedBytes bytes, const wire::Block& part, const wire::MessageLayout& layout);
ReceivedMessage ReceivePart(const ReceivedBytes& bytes, const wire::Block& part, const wire::MessageLayout& layout);

// INVALID_ARGUMENT when the bytes are not a message of `into`'s type, or one of more than kMaxElements elements.
absl::Status ParseInto(const grpc::ByteBuffer& bytes, google::protobuf::Message* into);
// The same for a message of tensors, given to `tensors` without a copy, unless only the full parser can read it.
absl::Status ParseInto(ReceivedMessage message, google::protobuf::Message* into, TensorSource* tensors);

// `reservation` is held for as long as the result's owner lives. `bytes` is a ReceivedMessage or a grpc::ByteBuffer.
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
    alignas(8) char first_block[1024];  // metadata of most messages
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

// The value of a varint field of a message that is not to be parsed as a whole; 0 if it has none.
uint64_t FindVarintField(const grpc::ByteBuffer& bytes, int field);

grpc::ByteBuffer Serialize(const google::protobuf::Message& message);

// The block as gRPC holds it: given back when the last reference to the slice, or to a part of it, is gone.
grpc::Slice ToSlice(Buffer block);

// The body of a message being built from the inside out: pieces of text each followed by a block passed by reference.
// Fields are appended in order, then the whole is wrapped as a field of the message around it.
class WireBody {
 public:
  void Append(std::string_view text);
  void Append(WireBody body);
  // The bytes of a `bytes` field: tag and length, then the block itself without a copy.
  void AppendBytesField(int field, Buffer bytes);
  void AppendBytesField(int field, grpc::Slice bytes);
  void AppendVarintField(int field, uint64_t value);
  // The bytes of such a field whose tag and length were appended.
  void AppendBlock(Buffer bytes);
  void AppendBlock(grpc::Slice bytes);
  // An embedded message.
  void AppendMessageField(int field, WireBody body);

  size_t size_bytes() const { return size_bytes_; }

  // The text, where it is followed by one block that ends the body; else empty.
  std::string_view TextBeforeBlock() const;

  // Hands everything over to gRPC.
  grpc::ByteBuffer ToByteBuffer() &&;

 private:
  struct Piece {
    std::string head;
    grpc::Slice block;  // after the head; may be empty
  };
  std::string& Head();

  std::vector<Piece> pieces_;
  size_t size_bytes_ = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_MESSAGE_H_

// Messages between gRPC's slices and protobuf: parsing onto an arena, writing with tensor bytes passed by reference.
// In the path: directly above Stream, on both sides. Values and pure functions.
#ifndef NORMD_SERVER_RPC_MESSAGE_H_
#define NORMD_SERVER_RPC_MESSAGE_H_

#include <google/protobuf/arena.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/buffer.h"
#include "server/base/status_macros.h"
#include "server/rpc/admission.h"

namespace normd::rpc {

// A parsed message with what keeps it alive; views into the message live as long as `owner`.
template <typename T>
struct Parsed {
  const T* message = nullptr;
  std::shared_ptr<const void> owner;

  const T& operator*() const { return *message; }
  const T* operator->() const { return message; }
};

// INVALID_ARGUMENT when the bytes are not a message of `into`'s type, or one of more than kMaxElements elements.
absl::Status ParseInto(const grpc::ByteBuffer& bytes, google::protobuf::Message* into);

// Charges the message's length to `admission` for as long as the result's owner lives.
template <typename T>
absl::StatusOr<Parsed<T>> Parse(const grpc::ByteBuffer& bytes, Admission& admission) {
  struct Owner {
    explicit Owner(Reservation r) : reservation(std::move(r)) {}
    Reservation reservation;
    google::protobuf::Arena arena;
  };
  absl::StatusOr<Reservation> reservation = admission.Reserve(static_cast<int64_t>(bytes.Length()));
  if (!reservation.ok()) return reservation.status();
  auto owner = std::make_shared<Owner>(*std::move(reservation));
  T* const message = google::protobuf::Arena::CreateMessage<T>(&owner->arena);
  NORMD_RETURN_IF_ERROR(ParseInto(bytes, message));
  return Parsed<T>{message, std::move(owner)};
}

// The value of a varint field of a message that is not to be parsed as a whole; 0 if it has none.
uint64_t FindVarintField(const grpc::ByteBuffer& bytes, int field);

grpc::ByteBuffer Serialize(const google::protobuf::Message& message);

// The body of a message being built from the inside out: pieces of text each followed by a block passed by reference.
// Fields are appended in order, then the whole is wrapped as a field of the message around it.
class WireBody {
 public:
  void Append(std::string_view text);
  void Append(WireBody body);
  // The bytes of a `bytes` field: tag and length, then the block itself without a copy.
  void AppendBytesField(int field, Buffer bytes);
  void AppendVarintField(int field, uint64_t value);
  // An embedded message.
  void AppendMessageField(int field, WireBody body);

  size_t size_bytes() const { return size_bytes_; }

  // Hands everything over to gRPC.
  grpc::ByteBuffer ToByteBuffer() &&;

 private:
  struct Piece {
    std::string head;
    Buffer block;  // after the head; may be empty
  };
  std::string& Head();

  std::vector<Piece> pieces_;
  size_t size_bytes_ = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_MESSAGE_H_

#include "client/cpp/slices.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <grpcpp/support/slice.h>

#include <string>
#include <utility>
#include <vector>

namespace normd::client {
namespace {

using SharedMessage = std::shared_ptr<const google::protobuf::MessageLite>;

// Fields that fit into the rest of a block are copied into it. The size is above most metadata, and below tensors that
// are worth a slice of their own.
constexpr int kBlockBytes = 1024;

class SliceStream final : public google::protobuf::io::ZeroCopyOutputStream {
 public:
  explicit SliceStream(SharedMessage message) : message_(std::move(message)) {}

  bool Next(void** data, int* size) override {
    Flush();
    block_ = grpc::Slice(kBlockBytes);
    used_ = kBlockBytes;
    *data = const_cast<uint8_t*>(block_.begin());
    *size = kBlockBytes;
    count_ += kBlockBytes;
    return true;
  }

  void BackUp(int count) override {
    used_ -= count;
    count_ -= count;
  }

  int64_t ByteCount() const override { return count_; }

  bool AllowsAliasing() const override { return true; }

  bool WriteAliasedRaw(const void* data, int size) override {
    Flush();
    auto* const keeper = new SharedMessage(message_);
    slices_.emplace_back(
        const_cast<void*>(data), static_cast<size_t>(size),
        [](void* kept) { delete static_cast<SharedMessage*>(kept); }, keeper);
    count_ += size;
    return true;
  }

  grpc::ByteBuffer Finish() {
    Flush();
    if (slices_.empty()) slices_.emplace_back();
    return grpc::ByteBuffer(slices_.data(), slices_.size());
  }

 private:
  void Flush() {
    if (used_ > 0) slices_.push_back(block_.sub(0, static_cast<size_t>(std::exchange(used_, 0))));
  }

  const SharedMessage message_;
  std::vector<grpc::Slice> slices_;
  grpc::Slice block_;
  int used_ = 0;  // bytes of block_ in use
  int64_t count_ = 0;
};

}  // namespace

grpc::ByteBuffer ToSlices(const SharedMessage& message) {
  SliceStream stream(message);
  {
    google::protobuf::io::CodedOutputStream output(&stream);
    output.EnableAliasing(true);
    message->ByteSizeLong();  // caches the sizes that SerializeWithCachedSizes needs
    message->SerializeWithCachedSizes(&output);
  }
  return stream.Finish();
}

}  // namespace normd::client

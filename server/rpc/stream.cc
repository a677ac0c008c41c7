#include "server/rpc/stream.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/numbers.h"
#include "proto/wire/metadata.h"

namespace normd::rpc {
namespace {

constexpr int64_t kMaxAnnouncedBytes = int64_t{1} << 31;  // gRPC has no larger messages
constexpr char kRetryPushbackMs[] = "100";                // as the RetryInfo says

}  // namespace

void LiveCount::Add() {
  MutexLock lock(mu_);
  ++count_;
}

void LiveCount::Remove() {
  MutexLock lock(mu_);
  if (--count_ == 0) none_.SignalAll();  // under the lock: the waiter may destroy this as soon as it is released
}

void LiveCount::WaitForNone() {
  MutexLock lock(mu_);
  while (count_ != 0) none_.Wait(mu_);
}

void Stream::Accept(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, LiveCount* live,
                    OnArrival on_arrival) {
  auto self = std::make_shared<Stream>(live);
  Stream* const stream = self.get();
  stream->context_.AsyncNotifyWhenDone(&stream->done_tag_);
  void* const tag = stream->arrival_tag_.Arm([self, on_arrival = std::move(on_arrival)](bool ok) mutable {
    if (!ok) return on_arrival(nullptr);
    // Armed here because the done tag never comes back for an RPC that did not arrive. It cannot run yet: it comes to
    // this queue, and this is the queue's only thread.
    self->done_tag_.Arm([self](bool) { self->HandleDone(); });
    on_arrival(std::move(self));
  });
  service->RequestCall(&stream->context_, &stream->stream_, queue, queue, tag);
}

int64_t Stream::AnnouncedBytes() const {
  const auto& metadata = context_.client_metadata();
  const auto found = metadata.find(wire::kMessageBytesKey);
  if (found == metadata.end()) return 0;
  int64_t bytes = 0;
  const bool ok = absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &bytes);
  return ok && bytes > 0 ? std::min(bytes, kMaxAnnouncedBytes) : 0;
}

void Stream::SetRetryPushback() { context_.AddTrailingMetadata("grpc-retry-pushback-ms", kRetryPushbackMs); }

void Stream::Read(OnRead on_read) {
  void* const tag = read_tag_.Arm([self = shared_from_this(), on_read = std::move(on_read)](bool ok) mutable {
    if (!ok) return on_read(std::nullopt);
    on_read(std::exchange(self->incoming_, grpc::ByteBuffer()));
  });
  stream_.Read(&incoming_, tag);
}

absl::Time Stream::deadline() const {
  const std::chrono::system_clock::time_point deadline = context_.deadline();
  const bool none = deadline == std::chrono::system_clock::time_point::max();
  return none ? absl::InfiniteFuture() : absl::FromChrono(deadline);
}

void Stream::Write(grpc::ByteBuffer message, Callback written) {
  {
    MutexLock lock(mu_);
    if (!finish_.has_value()) {
      writes_.push_back({message, std::move(written)});  // a reference: ByteBuffer has no move
      written = nullptr;
    }
  }
  if (written) written();
  Pump();
}

void Stream::Finish(grpc::Status status) {
  {
    MutexLock lock(mu_);
    if (finish_.has_value()) return;
    finish_ = std::move(status);
  }
  Pump();
}

void Stream::WriteAndFinish(grpc::ByteBuffer message, grpc::Status status, Callback written) {
  {
    MutexLock lock(mu_);
    if (finish_.has_value()) return;
    writes_.push_back({std::move(message), std::move(written)});
    finish_ = std::move(status);
  }
  Pump();
}

void Stream::Pump() {
  std::optional<PendingWrite> write;
  std::optional<grpc::Status> finish;
  {
    MutexLock lock(mu_);
    if (busy_ || (writes_.empty() && !finish_.has_value())) return;
    busy_ = true;
    if (!writes_.empty()) {
      write = std::move(writes_.front());
      writes_.erase(writes_.begin());
    }
    if (writes_.empty()) finish = finish_;
  }
  // Only the thread that set busy_ gets here, so the operations below never overlap.
  if (!write.has_value()) {
    stream_.Finish(*finish, write_tag_.Arm([self = shared_from_this()](bool) {}));
  } else if (finish.has_value()) {
    void* const tag = write_tag_.Arm([self = shared_from_this(), written = std::move(write->written)](bool) mutable {
      if (written) written();
    });
    stream_.WriteAndFinish(write->message, grpc::WriteOptions(), *finish, tag);
  } else {
    void* const tag = write_tag_.Arm([self = shared_from_this(), written = std::move(write->written)](bool) mutable {
      self->HandleWritten(std::move(written));
    });
    stream_.Write(write->message, tag);
  }
}

void Stream::HandleWritten(Callback written) {
  {
    MutexLock lock(mu_);
    busy_ = false;
  }
  // The next write goes first: `written` may be slow, or may finish the stream.
  Pump();
  if (written) written();
}

void Stream::OnCancelled(Callback callback) {
  {
    MutexLock lock(mu_);
    if (!done_) {
      on_cancelled_ = std::move(callback);
      return;
    }
  }
  if (cancelled()) callback();
}

void Stream::HandleDone() {
  Callback callback;
  cancelled_.store(context_.IsCancelled(), std::memory_order_release);
  {
    MutexLock lock(mu_);
    done_ = true;
    callback = std::move(on_cancelled_);
    on_cancelled_ = nullptr;  // it may hold the stream
  }
  if (cancelled() && callback) callback();
}

}  // namespace normd::rpc

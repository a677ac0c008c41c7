#include "client/cpp/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "client/cpp/status.h"
#include "client/cpp/tensor.h"
#include "client/cpp/without_tensors.h"
#include "proto/catalogue/outputs.h"

namespace normd::client {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLastBackoff = absl::Seconds(10);

// Tensors of at least this size are shared, which saves the transport's copies. Median us of an RMSNorm over the Unix
// socket, sent and shared, on a busy 2-core VM: 32 KiB 122 and 117, 64 KiB 174 and 147, 256 KiB 521 and 333, 4 MiB
// 10,000 and 6,300.
constexpr size_t kMinSharedBytes = size_t{64} << 10;

bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

// True for an inline, large tensor of as many bytes as its shape says. A malformed tensor is sent as it came, so that
// the server's refusal names the payload that the caller used.
bool IsWorthSharing(const v1::Tensor& tensor) {
  if (!tensor.has_data() || tensor.data().size() < kMinSharedBytes) return false;
  int64_t bytes = ElementBytes(tensor.dtype());
  for (const int64_t extent : tensor.shape()) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return false;
  }
  return static_cast<uint64_t>(bytes) == tensor.data().size();
}

void SetRange(const SharedBlock& block, v1::SharedRange* range) {
  range->set_region(block.region());
  range->set_offset(static_cast<uint64_t>(block.offset()));
  range->set_size_bytes(static_cast<uint64_t>(block.size_bytes()));
}

}  // namespace

void SetShared(const SharedBlock& block, v1::Tensor* tensor) { SetRange(block, tensor->mutable_shared()); }
void SetShared(const SharedBlock& block, v1::OutputRequest* output) { SetRange(block, output->mutable_shared()); }

bool NamesSharedMemory(const v1::NormalizeRequest& request) {
  return request.x().has_shared() || request.residual().tensor().has_shared() || request.mask().has_shared() ||
         std::any_of(request.outputs().begin(), request.outputs().end(),
                     [](const v1::OutputRequest& output) { return output.has_shared(); });
}

bool IsRegionLost(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return false;
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  return info.has_value() && info->reason == "REGION_NOT_FOUND";
}

// ---- SharedMemory

SharedMemory::SharedMemory(std::string target, SharedArenaOptions options)
    : target_(std::move(target)), options_(options), backoff_(kFirstBackoff) {}

absl::StatusOr<SharedBlock> SharedMemory::AllocateFrom(Get get, int64_t size_bytes) {
  for (int attempt = 0;; ++attempt) {
    const absl::StatusOr<Arena> arena = (this->*get)();
    if (!arena.ok()) return arena.status();
    absl::StatusOr<SharedBlock> block = (*arena)->Allocate(size_bytes);
    if (!block.ok() || block->registered()) return block;
    Drop(*arena);
    if (attempt > 0) return absl::UnavailableError("shared memory: the server drops regions as soon as it has them");
  }
}

absl::StatusOr<SharedMemory::Arena> SharedMemory::Ask() {
  std::unique_lock<std::mutex> lock(mu_);
  while (making_) made_.wait(lock);
  if (arena_ != nullptr) return arena_;
  return Make(lock);
}

absl::StatusOr<SharedMemory::Arena> SharedMemory::AskIfItIsTime() {
  std::unique_lock<std::mutex> lock(mu_);
  if (arena_ != nullptr) return arena_;
  if (making_) return absl::UnavailableError("shared memory: being registered");
  if (absl::Now() < next_try_) return failure_;
  return Make(lock);
}

absl::StatusOr<SharedMemory::Arena> SharedMemory::Make(std::unique_lock<std::mutex>& lock) {
  making_ = true;
  lock.unlock();
  absl::StatusOr<std::unique_ptr<SharedArena>> made = SharedArena::Create(target_, options_);
  lock.lock();
  making_ = false;
  made_.notify_all();
  if (made.ok()) {
    arena_ = *std::move(made);
    made_at_ = absl::Now();
    return arena_;
  }
  failure_ = made.status();
  SetNextTry();
  if (!IsTransient(failure_)) next_try_ = absl::InfiniteFuture();
  return failure_;
}

void SharedMemory::Abandon(const SharedBlock& block) {
  Arena arena;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    arena = arena_;
  }
  if (arena != nullptr && arena->Owns(block)) Drop(arena);
}

void SharedMemory::Drop(const Arena& arena) {
  arena->Close();
  const std::lock_guard<std::mutex> lock(mu_);
  if (arena_ != arena) return;
  arena_ = nullptr;
  failure_ = absl::UnavailableError("shared memory: the region was given up");
  if (absl::Now() - made_at_ > kLastBackoff) backoff_ = kFirstBackoff;
  SetNextTry();
}

void SharedMemory::SetNextTry() {
  next_try_ = absl::Now() + backoff_;
  backoff_ = std::min(2 * backoff_, kLastBackoff);
}

// ---- SharedCall

void SharedCall::Note(const absl::Status& status) {
  if (status.ok()) return;
  // An error with details was written by the server, after it was done with the request.
  const bool ended_here = absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
  certain_ = certain_ && !ended_here && GetErrorInfo(status).has_value();
}

void SharedCall::TakeResults(v1::NormalizeResponse* response) const {
  for (v1::Output& output : *response->mutable_outputs()) {
    if (!output.tensor().has_shared()) continue;
    for (const auto& [kind, block] : outputs_) {
      if (kind != output.kind()) continue;
      // set_data(pointer, size) would first make a temporary string and copy it.
      output.mutable_tensor()->mutable_data()->assign(reinterpret_cast<const char*>(block.data()),
                                                      static_cast<size_t>(block.size_bytes()));
    }
  }
}

bool SharedCall::IsToBeSentInline(const absl::Status& status) {
  if (IsRegionLost(status)) return true;
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  return absl::IsInvalidArgument(status) && info.has_value() && absl::StrContains(info->field, ".shared");
}

// ---- SharedCalls

std::optional<SharedCall> SharedCalls::Begin(const v1::NormalizeRequest& request) {
  if (request.validate_only() || !IsWorthSharing(request.x()) || NamesSharedMemory(request)) return std::nullopt;
  SharedCall call;
  if (!ShareTensors(request, &call).ok()) return std::nullopt;
  return call;
}

absl::Status SharedCalls::ShareTensors(const v1::NormalizeRequest& request, SharedCall* call) {
  absl::StatusOr<SharedBlock> x = CopyIn(request.x());
  if (!x.ok()) return x.status();
  CopyWithoutTensors(request, &call->request_);
  SetShared(*x, call->request_.mutable_x());
  call->inputs_.push_back(*std::move(x));
  if (const v1::Tensor& residual = request.residual().tensor(); IsWorthSharing(residual)) {
    absl::StatusOr<SharedBlock> block = CopyIn(residual);
    if (!block.ok()) return block.status();
    SetShared(*block, call->request_.mutable_residual()->mutable_tensor());
    call->inputs_.push_back(*std::move(block));
  } else if (residual.payload_case() != v1::Tensor::PAYLOAD_NOT_SET) {
    *call->request_.mutable_residual()->mutable_tensor() = residual;
  }
  if (request.outputs().empty()) call->request_.add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
  for (v1::OutputRequest& output : *call->request_.mutable_outputs()) {
    if (!IsLikeX(output.kind())) continue;  // the others are small, and of a size that depends on the method
    absl::StatusOr<SharedBlock> block = memory_->TryAllocate(static_cast<int64_t>(request.x().data().size()));
    if (!block.ok()) return block.status();
    SetShared(*block, &output);
    call->outputs_.push_back({output.kind(), *std::move(block)});
  }
  return absl::OkStatus();
}

absl::StatusOr<SharedBlock> SharedCalls::CopyIn(const v1::Tensor& tensor) {
  absl::StatusOr<SharedBlock> block = memory_->TryAllocate(static_cast<int64_t>(tensor.data().size()));
  if (block.ok()) std::memcpy(block->data(), tensor.data().data(), tensor.data().size());
  return block;
}

void SharedCalls::End(SharedCall call) {
  if (call.certain_) return;
  // Abandon before the blocks are freed: parts that are freed afterwards are never handed out again.
  for (const SharedBlock& input : call.inputs_) memory_->Abandon(input);
  for (const auto& [kind, block] : call.outputs_) memory_->Abandon(block);
}

}  // namespace normd::client

#include "tests/support/fake_cuda.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace normd {
namespace {

constexpr size_t kHandleBytes = 64;

std::byte* Map(int object, int64_t size_bytes, int protection) {
  void* const data = mmap(nullptr, static_cast<size_t>(size_bytes), protection, MAP_SHARED, object, 0);
  EXPECT_NE(data, MAP_FAILED);
  return static_cast<std::byte*>(data);
}

}  // namespace

FakeCuda::~FakeCuda() {
  EXPECT_EQ(open_now(), 0) << "a handle was left open";
  EXPECT_EQ(events_open_now(), 0) << "an event was left open";
  for (const auto& [handle, allocation] : allocations_) {
    munmap(allocation.owned, static_cast<size_t>(allocation.size_bytes));
    close(allocation.object);
  }
}

std::string FakeCuda::Allocate(int64_t size_bytes) {
  const std::lock_guard<std::mutex> lock(mu_);
  std::string handle = "allocation " + std::to_string(allocations_.size());
  handle.resize(kHandleBytes);
  Allocation& allocation = allocations_[handle];
  allocation.size_bytes = size_bytes;
  allocation.object = memfd_create("normd-fake-cuda", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(allocation.object, size_bytes), 0);
  allocation.owned = Map(allocation.object, size_bytes, PROT_READ | PROT_WRITE);
  return handle;
}

std::byte* FakeCuda::Owned(std::string_view handle) {
  const std::lock_guard<std::mutex> lock(mu_);
  return allocations_.find(handle)->second.owned;
}

absl::StatusOr<FakeCuda::Opened> FakeCuda::Open(std::string_view handle, int /*device*/) {
  if (!fail_open.ok()) return fail_open;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = allocations_.find(handle);
  if (found == allocations_.end()) return absl::InvalidArgumentError("no such handle");
  Allocation& allocation = found->second;
  if (allocation.open != nullptr) return absl::InvalidArgumentError("the handle is open");
  allocation.open = Map(allocation.object, allocation.size_bytes, PROT_NONE);
  ++opened_;
  return Opened{allocation.open, allocation.size_bytes};
}

void FakeCuda::Close(const std::byte* data) {
  const std::lock_guard<std::mutex> lock(mu_);
  for (auto& [handle, allocation] : allocations_) {
    if (allocation.open != data) continue;
    munmap(allocation.open, static_cast<size_t>(allocation.size_bytes));
    allocation.open = nullptr;
    ++closed_;
    return;
  }
  ADD_FAILURE() << "closed what is not open";
}

std::byte* FakeCuda::OnDevice(const void* address) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto* const at = static_cast<const std::byte*>(address);
  for (const auto& [handle, allocation] : allocations_) {
    if (allocation.open == nullptr || at < allocation.open || at >= allocation.open + allocation.size_bytes) continue;
    return allocation.owned + (at - allocation.open);
  }
  return nullptr;
}

int FakeCuda::opened() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return opened_;
}

int FakeCuda::open_now() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return opened_ - closed_;
}

std::string FakeCuda::CreateEvent() {
  const std::lock_guard<std::mutex> lock(mu_);
  std::string handle = "event " + std::to_string(events_.size());
  handle.resize(kHandleBytes);
  events_[handle] = {};
  return handle;
}

void FakeCuda::Record(std::string_view handle) {
  const std::lock_guard<std::mutex> lock(mu_);
  events_.find(handle)->second = {.recorded = true, .completed = false};
}

void FakeCuda::Complete(std::string_view handle) {
  const std::lock_guard<std::mutex> lock(mu_);
  events_.find(handle)->second.completed = true;
}

absl::StatusOr<void*> FakeCuda::OpenEvent(std::string_view handle, int /*device*/) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = events_.find(handle);
  if (found == events_.end()) return absl::InvalidArgumentError("no such event");
  open_events_.insert(&found->second);
  ++events_opened_;
  return &found->second;
}

absl::StatusOr<bool> FakeCuda::IsEventCompleted(const void* event) {
  const std::lock_guard<std::mutex> lock(mu_);
  ++event_queries_;
  if (!open_events_.contains(event)) return absl::UnavailableError("asked for an event that is not open");
  const auto* const found = static_cast<const Event*>(event);
  return !found->recorded || found->completed;
}

void FakeCuda::CloseEvent(void* event) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = open_events_.find(event);
  if (found == open_events_.end()) {
    ADD_FAILURE() << "closed an event that is not open";
  } else {
    open_events_.erase(found);
  }
}

int FakeCuda::events_opened() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return events_opened_;
}

int FakeCuda::events_open_now() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return static_cast<int>(open_events_.size());
}

int64_t FakeCuda::event_queries() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return event_queries_;
}

}  // namespace normd

#include "server/session/durable/file_check.h"

#include <utility>

#include "absl/time/clock.h"
#include "server/base/errors.h"

namespace normd {

FileCheck::FileCheck(std::unique_ptr<SessionTable> table, const DurableStoreOptions& options)
    : on_file_damaged_(options.observer.on_file_damaged), table_(std::move(table)) {
  if (table_ == nullptr) return;
  if (table_->SizeBytes() <= options.max_bytes_checked_first) {
    Check();
  } else {
    thread_ = std::thread([this] { Check(); });
  }
}

FileCheck::~FileCheck() { Stop(); }

void FileCheck::Stop() {
  // An interruption that comes before the check has begun is lost, so it is repeated.
  while (thread_.joinable() && !ended()) {
    table_->Interrupt();
    absl::SleepFor(absl::Milliseconds(1));
  }
  if (thread_.joinable()) thread_.join();
  table_ = nullptr;
}

void FileCheck::Check() {
  const absl::Status status = table_->CheckIntegrity();
  const bool damaged = absl::IsDataLoss(status);
  {
    MutexLock lock(mu_);
    ended_ = true;
    damaged_ = damaged;
  }
  if (damaged && on_file_damaged_ != nullptr) on_file_damaged_(status);
}

bool FileCheck::ended() const {
  MutexLock lock(mu_);
  return ended_;
}

bool FileCheck::damaged() const {
  MutexLock lock(mu_);
  return damaged_;
}

absl::Status FileCheck::MissingRow() const {
  if (!damaged()) return absl::OkStatus();
  return DataLossError("the store's file is damaged, and this session may have been in it; restore a backup");
}

}  // namespace normd

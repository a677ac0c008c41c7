#include "server/session/sqlite/sqlite_checkpointer.h"

#include "kernels/base/status_macros.h"
#include "server/base/steady_time.h"

namespace normd {

absl::StatusOr<std::unique_ptr<SqliteCheckpointer>> SqliteCheckpointer::Open(
    const std::string& path, const std::string& setup, const std::string& vfs,
    std::function<void(absl::Duration)> on_pass) {
  NORMD_ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> connection,
                         SqliteConnection::Open(path, /*read_only=*/false, vfs));
  NORMD_RETURN_IF_ERROR(connection->Execute(setup));
  return std::unique_ptr<SqliteCheckpointer>(new SqliteCheckpointer(std::move(connection), std::move(on_pass)));
}

SqliteCheckpointer::SqliteCheckpointer(std::unique_ptr<SqliteConnection> connection,
                                       std::function<void(absl::Duration)> on_pass)
    : connection_(std::move(connection)), on_pass_(std::move(on_pass)), thread_([this] { Run(); }) {}

SqliteCheckpointer::~SqliteCheckpointer() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void SqliteCheckpointer::Start() {
  {
    MutexLock lock(mu_);
    running_ = true;
  }
  changed_.SignalAll();
}

bool SqliteCheckpointer::running() const {
  MutexLock lock(mu_);
  return running_;
}

void SqliteCheckpointer::Wait() {
  MutexLock lock(mu_);
  while (running_) changed_.Wait(mu_);
}

bool SqliteCheckpointer::flush_failed() const {
  MutexLock lock(mu_);
  return flush_failed_;
}

void SqliteCheckpointer::Run() {
  while (true) {
    {
      MutexLock lock(mu_);
      while (!running_ && !stopping_) changed_.Wait(mu_);
      if (!running_) return;
    }
    // Other errors leave the log as it is; the writer's own checkpoint meets them, too, and reports them.
    const absl::Time start = SteadyNow();
    connection_->Checkpoint().IgnoreError();
    if (on_pass_ != nullptr) on_pass_(SteadyNow() - start);
    {
      MutexLock lock(mu_);
      running_ = false;
      flush_failed_ = connection_->flush_failed();
    }
    changed_.SignalAll();
  }
}

}  // namespace normd

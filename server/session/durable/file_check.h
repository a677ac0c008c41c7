// Checks once, when a store is opened, whether the file that holds its rows is intact: a small file before the store
// serves, a large one meanwhile.
// In the path: beside it. A session without a row may have been lost with a damaged file; the writer and the reader ask
// here for the answer. Ownership: owns the table that it checks.
// Threads: safe from any thread. A thread of its own checks a large file and ends after the check.
#ifndef NORMD_SERVER_SESSION_DURABLE_FILE_CHECK_H_
#define NORMD_SERVER_SESSION_DURABLE_FILE_CHECK_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/base/mutex.h"
#include "server/session/durable/durable_options.h"
#include "server/session/session_table.h"

namespace normd {

class FileCheck {
 public:
  // `table` is a connection for the check alone; null: there is nothing to check.
  FileCheck(std::unique_ptr<SessionTable> table, const DurableStoreOptions& options);
  ~FileCheck();
  // Interrupts a check that still runs, and closes the table.
  void Stop();

  bool damaged() const;
  // What is known of a session that has no row: OK if it does not exist, DATA_LOSS if it may be a lost one.
  absl::Status MissingRow() const;

 private:
  void Check();
  bool ended() const;

  // Constant after construction.
  const std::function<void(const absl::Status& damage)> on_file_damaged_;

  std::unique_ptr<SessionTable> table_;  // until Stop

  mutable Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool damaged_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_FILE_CHECK_H_

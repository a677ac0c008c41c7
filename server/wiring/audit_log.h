// The audit log: one line for each change of a session, each session that leaves or enters the server, each region
// registered, and each call denied.
// In the path: beside it; telemetry.cc passes the records on. The lines go to a file of their own, or among the lines
// of the log, where --log_level does not hold them back. Threads: everything is safe from any thread. A line is written
// before its call is answered.
#ifndef NORMD_SERVER_WIRING_AUDIT_LOG_H_
#define NORMD_SERVER_WIRING_AUDIT_LOG_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/obs/log.h"
#include "server/rpc/edge/audit_record.h"

namespace normd {

class AuditLog {
 public:
  // Lines go to the end of the file at `path`, which is made with mode 0600; with an empty `path`, to stderr. Returns
  // BAD_FILE if the file cannot be opened. Borrows `clock`.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path, LogFormat format, Clock* clock);
  ~AuditLog();

  // Writes one line. Lines of calls that were let in are never left out; a line that the file does not take goes to
  // stderr. Lines of denied calls, which strangers can cause, are bounded as warnings are (log.h).
  void Write(const AuditRecord& record);

  // Opens the file at the path anew, after its old one was renamed. On an error the old one stays in use.
  absl::Status Reopen();

 private:
  class File;
  AuditLog(std::unique_ptr<File> file, LogFormat format, Clock* clock);

  const std::unique_ptr<File> file_;  // null: stderr
  Log log_;                           // of its own: its limit of lines is not used up by others
};

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_AUDIT_LOG_H_

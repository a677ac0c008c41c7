// Structured logs on stderr: one line an event, a message and key=value fields, as text or as JSON objects.
// Levels: debug has a line for every request, info the life of the server, warn what the environment did to us, error
// what stops or damages something. Warn and error are bounded in rate: what is left out is counted on the next line.
// Threads: every method is safe from any thread. Made once by the wiring and passed by pointer; there is no global log.
#ifndef NORMD_SERVER_OBS_LOG_H_
#define NORMD_SERVER_OBS_LOG_H_

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace normd {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };
enum class LogFormat : uint8_t { kText, kJson };

struct LogField {
  LogField(std::string_view key_in, std::string_view value_in) : key(key_in), value(value_in) {}
  LogField(std::string_view key_in, int64_t number) : key(key_in), value(std::to_string(number)), is_number(true) {}

  std::string_view key;
  std::string value;
  bool is_number = false;
};

using LogFields = std::vector<LogField>;

// One line without its end. Text: "2024-05-01T12:00:00.123Z INFO message key=value"; values with spaces, quotes or
// control characters are quoted and escaped, so that a line stays a line whatever callers send.
std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level, std::string_view message,
                          const LogFields& fields);

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::ostream* out = nullptr;  // for tests; borrowed; null: stderr
  // Warn and error lines: this many at once, then as many a second.
  int burst = 20;
  double per_second = 5;
};

class Log {
 public:
  // Borrows `clock`.
  Log(const LogOptions& options, Clock* clock);

  // Whether a line of `level` would be written: ask before making fields on a hot path.
  bool Enabled(LogLevel level) const { return level >= options_.level; }

  void Debug(std::string_view message, const LogFields& fields = {}) { Write(LogLevel::kDebug, message, fields); }
  void Info(std::string_view message, const LogFields& fields = {}) { Write(LogLevel::kInfo, message, fields); }
  void Warn(std::string_view message, const LogFields& fields = {}) { Write(LogLevel::kWarn, message, fields); }
  void Error(std::string_view message, const LogFields& fields = {}) { Write(LogLevel::kError, message, fields); }

 private:
  void Write(LogLevel level, std::string_view message, LogFields fields);
  // A line that cannot be written is lost: there is nowhere else to say so.
  void Append(std::string line) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether a bounded line may pass now; if so, how many were left out before it.
  bool TakeToken(absl::Time now, int64_t* left_out) ABSL_LOCKS_EXCLUDED(mu_);

  // Constant after construction.
  const LogOptions options_;
  Clock* const clock_;

  Mutex mu_;  // also held while a line is written to `options_.out`
  double tokens_ ABSL_GUARDED_BY(mu_);
  absl::Time refilled_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_OBS_LOG_H_

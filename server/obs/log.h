// Structured logs on stderr: each event is one line with a message and key=value fields, as text or as a JSON object.
// Levels: debug has a line for every request, info reports the life of the server, warn reports trouble in the
// environment, and error reports events that stop or damage something. Warn and error lines are limited in rate; the
// next line that is written counts those left out.
// In the path: beside it; main makes the logs and passes them by pointer. There is no global log.
// Threads: every method is safe from any thread.
#ifndef NORMD_SERVER_OBS_LOG_H_
#define NORMD_SERVER_OBS_LOG_H_

#include <atomic>
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

// Formats one line, without its end of line. Text has the form "2024-05-01T12:00:00.123Z INFO message key=value";
// values with spaces, quotes or control characters are quoted and escaped, as are characters that turn the direction of
// text, so that callers cannot break a line or make it look like another one.
std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level, std::string_view message,
                          const LogFields& fields);

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::ostream* out = nullptr;  // for tests; borrowed; null: stderr
  // The rate limit of warn and error lines: the size of a burst, and the rate after it.
  int burst = 20;
  double per_second = 5;
};

class Log {
 public:
  // Borrows `clock`, which must outlive the log.
  Log(const LogOptions& options, Clock* clock);

  LogFormat format() const { return format_.load(std::memory_order_relaxed); }
  // Changes which lines are written and how. Lines that other threads are writing meanwhile may still be the old ones.
  void SetStyle(LogLevel level, LogFormat format) {
    level_.store(level, std::memory_order_relaxed);
    format_.store(format, std::memory_order_relaxed);
  }

  // Whether lines of `level` are written. Ask before making fields on a hot path.
  bool Enabled(LogLevel level) const { return level >= level_.load(std::memory_order_relaxed); }

  void Debug(std::string_view message, const LogFields& fields = {}) { Write(LogLevel::kDebug, message, fields); }
  void Info(std::string_view message, const LogFields& fields = {}) { Write(LogLevel::kInfo, message, fields); }
  void Warn(std::string_view message, const LogFields& fields = {}) { Write(LogLevel::kWarn, message, fields); }
  void Error(std::string_view message, const LogFields& fields = {}) { Write(LogLevel::kError, message, fields); }

 private:
  void Write(LogLevel level, std::string_view message, LogFields fields);
  // Writes a line. A line that cannot be written is lost, because there is nowhere else to report it.
  void Append(std::string line) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the rate limit lets a line pass now; if so, `*left_out` becomes the number of lines left out before it.
  bool TakeToken(absl::Time now, int64_t* left_out) ABSL_LOCKS_EXCLUDED(mu_);

  // Constant after construction.
  const LogOptions options_;  // `level` and `format` are only those of the start
  Clock* const clock_;

  std::atomic<LogLevel> level_;
  std::atomic<LogFormat> format_;

  Mutex mu_;  // also serialises writes to `options_.out`
  double tokens_ ABSL_GUARDED_BY(mu_);
  absl::Time refilled_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_OBS_LOG_H_

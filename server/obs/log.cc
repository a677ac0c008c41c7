#include "server/obs/log.h"

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/base/hidden_text.h"

namespace normd {
namespace {

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarn:
      return "WARN";
    case LogLevel::kError:
      return "ERROR";
  }
  return "";
}

std::string Escape(std::string_view value) {
  // Bytes that are not UTF-8 are replaced, because programs that read logs insist on UTF-8. JSON leaves characters as
  // they are that turn the direction of text, and so make a name look like another one.
  return EscapeHiddenText(nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

bool NeedsQuotes(std::string_view value) {
  if (value.empty()) return true;
  return std::any_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 0x7f || c == '"' || c == '=' ||
           c == '\\';
  });
}

std::string TextLine(std::string_view time, LogLevel level, std::string_view message, const LogFields& fields) {
  std::string line;
  line.append(time).append(" ").append(LevelName(level)).append(" ").append(message);
  for (const LogField& field : fields) {
    line.append(" ").append(field.key).append("=");
    line.append(NeedsQuotes(field.value) ? Escape(field.value) : field.value);
  }
  return line;
}

std::string JsonLine(std::string_view time, LogLevel level, std::string_view message, const LogFields& fields) {
  std::string line;
  line.append("{\"time\":").append(Escape(time)).append(",\"level\":").append(Escape(LevelName(level)));
  line.append(",\"message\":").append(Escape(message));
  for (const LogField& field : fields) {
    line.append(",").append(Escape(field.key)).append(":");
    line.append(field.is_number ? field.value : Escape(field.value));
  }
  return line.append("}");
}

}  // namespace

std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level, std::string_view message,
                          const LogFields& fields) {
  const std::string stamp = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  return format == LogFormat::kJson ? JsonLine(stamp, level, message, fields) : TextLine(stamp, level, message, fields);
}

Log::Log(const LogOptions& options, Clock* clock)
    : options_(options), clock_(clock), level_(options.level), format_(options.format), tokens_(options.burst) {}

void Log::Write(LogLevel level, std::string_view message, LogFields fields) {
  if (!Enabled(level)) return;
  const absl::Time now = clock_->Now();
  if (level >= LogLevel::kWarn) {
    int64_t left_out = 0;
    if (!TakeToken(now, &left_out)) return;
    if (left_out > 0) fields.emplace_back("lines_left_out", left_out);
  }
  Append(FormatLogLine(format_.load(std::memory_order_relaxed), now, level, message, fields));
}

void Log::Append(std::string line) {
  line.push_back('\n');
  if (options_.out == nullptr) {
    // stderr has no buffer, so a line is one write, and it has a lock of its own, so the lines of several logs do not
    // mix.
    std::fwrite(line.data(), 1, line.size(), stderr);
    return;
  }
  MutexLock lock(mu_);
  *options_.out << line << std::flush;
}

bool Log::TakeToken(absl::Time now, int64_t* left_out) {
  MutexLock lock(mu_);
  if (now > refilled_) {
    const double seconds = std::min(absl::ToDoubleSeconds(now - refilled_), 3600.0);
    tokens_ = std::min(tokens_ + seconds * options_.per_second, static_cast<double>(options_.burst));
    refilled_ = now;
  }
  if (tokens_ < 1) {
    ++left_out_;
    return false;
  }
  tokens_ -= 1;
  *left_out = std::exchange(left_out_, 0);
  return true;
}

}  // namespace normd

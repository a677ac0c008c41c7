#include "server/wiring/audit_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ostream>
#include <streambuf>
#include <string_view>
#include <system_error>
#include <utility>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/base/tenant_name.h"
#include "server/base/unique_fd.h"

namespace normd {
namespace {

absl::StatusOr<UniqueFd> OpenToAppend(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (fd.valid()) return fd;
  const std::string why = std::generic_category().message(errno);
  return MakeError(ServerReason("BAD_FILE"),
                   {.field = "--audit_log", .value = path, .limit = "a file that can be written to"},
                   Concat(path, ": cannot be opened: ", why));
}

LogFields FieldsOf(const AuditRecord& record) {
  const bool known = record.identity != nullptr;
  LogFields fields = {{"method", record.method},
                      {"identity", known ? std::string_view(record.identity->name) : "unknown"},
                      {"tenant", TenantLabel(known ? std::string_view(record.identity->tenant) : std::string_view())},
                      {"peer", record.peer}};
  if (!record.request_id.empty()) fields.emplace_back("request_id", record.request_id);
  fields.emplace_back("code", absl::StatusCodeToString(record.code));
  if (!record.session.empty()) fields.emplace_back("session", record.session);
  if (!record.source.empty()) fields.emplace_back("source", record.source);
  if (!record.denied.empty()) fields.emplace_back("denied", record.denied);
  return fields;
}

}  // namespace

// A stream that hands each line to the system in one piece, so that the file has whole lines, also when another process
// appends to it. A log writes one line at a time.
class AuditLog::File : public std::streambuf {
 public:
  File(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::ostream* stream() { return &stream_; }

  absl::Status Reopen() {
    absl::StatusOr<UniqueFd> fresh = OpenToAppend(path_);
    if (!fresh.ok()) return fresh.status();
    // The descriptor's number stays, so that a line which is being written goes to one file or the other.
    dup3(fresh->get(), fd_.get(), O_CLOEXEC);
    return absl::OkStatus();
  }

 protected:
  int_type overflow(int_type c) override {
    if (c != traits_type::eof()) line_.push_back(static_cast<char>(c));
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    line_.append(text, static_cast<size_t>(size));
    return size;
  }
  int sync() override {
    const ssize_t written = write(fd_.get(), line_.data(), line_.size());
    if (written != static_cast<ssize_t>(line_.size())) std::fwrite(line_.data(), 1, line_.size(), stderr);
    line_.clear();
    return 0;
  }

 private:
  const std::string path_;
  const UniqueFd fd_;
  std::string line_;
  std::ostream stream_{this};
};

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path, LogFormat format, Clock* clock) {
  std::unique_ptr<File> file;
  if (!path.empty()) {
    absl::StatusOr<UniqueFd> fd = OpenToAppend(path);
    if (!fd.ok()) return fd.status();
    file = std::make_unique<File>(path, *std::move(fd));
  }
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(file), format, clock));
}

AuditLog::AuditLog(std::unique_ptr<File> file, LogFormat format, Clock* clock)
    : file_(std::move(file)),
      log_({.level = LogLevel::kInfo, .format = format, .out = file_ == nullptr ? nullptr : file_->stream()}, clock) {}

AuditLog::~AuditLog() = default;

void AuditLog::Write(const AuditRecord& record) {
  if (record.denied.empty()) return log_.Info("audit", FieldsOf(record));
  log_.Warn("audit", FieldsOf(record));
}

absl::Status AuditLog::Reopen() { return file_ == nullptr ? absl::OkStatus() : file_->Reopen(); }

}  // namespace normd

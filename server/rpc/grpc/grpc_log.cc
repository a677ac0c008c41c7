#include "server/rpc/grpc/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <atomic>
#include <string>
#include <string_view>
#include <thread>

namespace normd {
namespace {

constexpr size_t kMaxTextBytes = 1024;  // bounded because lines hold text from peers

// Both libraries call plain functions, so the target of the lines has to be global.
std::atomic<Log*> target{nullptr};
std::atomic<int> writing{0};

void WriteLine(LogLevel level, const char* library, const char* file, int line, std::string_view text) {
  writing.fetch_add(1);
  if (Log* const log = target.load(); log != nullptr) {
    const std::string_view path = file == nullptr ? std::string_view() : file;
    std::string place(path.substr(path.rfind('/') + 1));  // npos + 1 is 0
    place.append(":").append(std::to_string(line));
    const LogFields fields = {{"text", text.substr(0, kMaxTextBytes)}, {"at", place}};
    switch (level) {
      case LogLevel::kDebug:
        log->Debug(library, fields);
        break;
      case LogLevel::kInfo:
        log->Info(library, fields);
        break;
      case LogLevel::kWarn:
        log->Warn(library, fields);
        break;
      case LogLevel::kError:
        log->Error(library, fields);
        break;
    }
  }
  writing.fetch_sub(1);
}

LogLevel LevelOf(gpr_log_severity severity) {
  if (severity == GPR_LOG_SEVERITY_ERROR) return LogLevel::kError;
  return severity == GPR_LOG_SEVERITY_INFO ? LogLevel::kInfo : LogLevel::kDebug;
}

LogLevel LevelOf(google::protobuf::LogLevel level) {
  if (level >= google::protobuf::LOGLEVEL_ERROR) return LogLevel::kError;
  return level == google::protobuf::LOGLEVEL_WARNING ? LogLevel::kWarn : LogLevel::kInfo;
}

void OnGrpcLine(gpr_log_func_args* args) {
  WriteLine(LevelOf(args->severity), "gRPC", args->file, args->line, args->message);
}

void OnProtobufLine(google::protobuf::LogLevel level, const char* file, int line, const std::string& text) {
  WriteLine(LevelOf(level), "protobuf", file, line, text);
}

}  // namespace

GrpcLog::GrpcLog(Log* log) {
  target = log;
  gpr_log_verbosity_init();  // reads GRPC_VERBOSITY (default: errors only); without this call not even errors come
  gpr_set_log_function(&OnGrpcLine);
  google::protobuf::SetLogHandler(&OnProtobufLine);
}

GrpcLog::~GrpcLog() {
  target = nullptr;
  while (writing != 0) std::this_thread::yield();
}

}  // namespace normd

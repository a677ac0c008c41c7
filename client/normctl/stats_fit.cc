// normctl stats fit: adds the rows of files to shared statistics, each row once, however often it is started.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/csv_flags.h"
#include "client/cli/row_file.h"
#include "client/cpp/sample_moments.h"
#include "client/normctl/channel_statistics.h"
#include "client/normctl/commands.h"
#include "client/normctl/session_message.h"

namespace normd::client {
namespace {

// The rows of a file are sent in steps of this size. It is a part of what a StepId means, so it is no option: a run
// with another one would count everything again.
constexpr int64_t kStepRows = 65'536;
// The elements that are reduced at a time. It decides the last bits of a step, which must be the same in every run.
constexpr int64_t kBlockElements = 65'536;
constexpr int64_t kMaxJobs = 64;

// What tells whether a file changed while it was read.
struct FileTimes {
  std::uintmax_t bytes = 0;
  std::filesystem::file_time_type written;
  bool operator==(const FileTimes& other) const { return bytes == other.bytes && written == other.written; }
};

// A file, and what became of its rows.
struct FittedFile {
  std::string path, digest;
  FileTimes times;
  int64_t rows = 0, counted = 0, counted_before = 0;
  int64_t not_finite = 0;  // values that were left out
  std::string warning;
};

FileTimes TimesOf(const std::string& path) {
  std::error_code error;  // a file that is gone is told when it is read
  return {std::filesystem::file_size(path, error), std::filesystem::last_write_time(path, error)};
}

// The rows of one file on their way to the session.
class FileFit {
 public:
  FileFit(Client* client, std::string session, FittedFile* file)
      : client_(client), session_(std::move(session)), file_(file), client_id_(absl::StrCat("fit-", file->digest)) {}

  absl::Status Run(const CsvOptions& csv) {
    const absl::StatusOr<std::unique_ptr<RowFile>> rows = RowFile::Open(file_->path, csv);
    if (!rows.ok()) return rows.status();
    bool is_over = false;
    while (!is_over) {
      absl::StatusOr<Step> step = ReadStep(**rows);
      if (!step.ok()) return step.status();
      if (!(TimesOf(file_->path) == file_->times)) return Trouble("changed while it was read; run the command again");
      is_over = step->rows < kStepRows;
      if (step->rows == 0) break;
      if (absl::Status status = Count(*step, (*rows)->names()); !status.ok()) return status;
    }
    file_->warning = (*rows)->warning();
    return CheckMemory();
  }

 private:
  struct Step {
    SampleMoments moments;
    int64_t rows = 0;
    int64_t not_finite = 0;
  };

  absl::Status Trouble(absl::string_view what) const {
    return absl::FailedPreconditionError(absl::StrCat(file_->path, ": ", what));
  }

  // The server's error, with its details.
  absl::Status OfThisFile(const absl::Status& status) const {
    const bool is_lost = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    absl::Status out(status.code(), absl::StrCat(file_->path, ": ", status.message(),
                                                 is_lost ? " (start the command again: rows count once)" : ""));
    status.ForEachPayload([&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
    return out;
  }

  static absl::StatusOr<Step> ReadStep(RowFile& file) {
    const auto channels = static_cast<size_t>(file.channels());
    const int64_t block_rows = std::max<int64_t>(kBlockElements / file.channels(), 1);
    Step step{SampleMoments::None(channels)};
    while (step.rows < kStepRows) {
      const absl::StatusOr<std::vector<double>> rows = file.Next(std::min(block_rows, kStepRows - step.rows));
      if (!rows.ok()) return rows.status();
      if (rows->empty()) break;
      const SampleMoments moments = SampleMoments::Of(*rows, channels, NonFinite::kDropsValue);
      const auto values = static_cast<int64_t>(rows->size());
      step.rows += values / file.channels();
      step.not_finite += values;
      for (const double count : moments.count) step.not_finite -= static_cast<int64_t>(count);
      step.moments.Merge(moments);
    }
    return step;
  }

  // Sends the step, unless it is known to be counted.
  absl::Status Count(const Step& step, const std::vector<std::string>& names) {
    ++sequence_;
    file_->rows += step.rows;
    file_->not_finite += step.not_finite;
    // The last step that the server knows of is sent again: its data must be the same.
    if (sequence_ < last_known_) {
      file_->counted_before += step.rows;
      return absl::OkStatus();
    }
    v1::CommitMomentsRequest request;
    request.set_session(session_);
    request.mutable_step()->set_client_id(client_id_);
    request.mutable_step()->set_sequence(sequence_);
    *request.add_moments() = step.moments.ToProto();
    request.mutable_channel_names()->Add(names.begin(), names.end());
    const absl::StatusOr<v1::StateResult> result = client_->CommitMoments(request);
    const bool was_counted = result.ok() ? result->replayed() : NoteTooOld(result.status());
    (was_counted ? file_->counted_before : file_->counted) += result.ok() || was_counted ? step.rows : 0;
    if (result.ok() || was_counted) return absl::OkStatus();
    return OfThisFile(result.status());
  }

  // True if the server answers that the steps of this file up to `last_known_` are counted.
  bool NoteTooOld(const absl::Status& status) {
    const std::optional<ErrorInfo> info = GetErrorInfo(status);
    if (!info.has_value() || info->reason != "STEP_TOO_OLD") return false;
    absl::string_view limit = info->limit;  // "above 40 or one of ..."
    uint64_t last = 0;
    if (!absl::ConsumePrefix(&limit, "above ") || !absl::SimpleAtoi(limit.substr(0, limit.find(' ')), &last)) {
      return false;
    }
    last_known_ = std::max(last_known_, last);
    return true;
  }

  // A session remembers the last step of some 66,000 contributors, and of all others that they came before. Where it
  // has forgotten a file, it answers for those, who may have come further than the file is long.
  absl::Status CheckMemory() const {
    if (last_known_ <= sequence_) return absl::OkStatus();
    return Trouble(absl::StrCat(
        "the session has had more contributors than it remembers, and does not know whether these rows are "
        "counted: fit them into a new session"));
  }

  Client* const client_;
  const std::string session_;
  FittedFile* const file_;
  const std::string client_id_;  // the content of the file, wherever it lies
  uint64_t sequence_ = 0, last_known_ = 0;
};

// The session, which is created if there is none.
absl::Status PrepareSession(Client& client, const std::string& name, const RowFile& file) {
  absl::StatusOr<v1::Session> session = client.GetSession(name, v1::SESSION_VIEW_FULL);
  if (absl::IsNotFound(session.status())) {
    v1::CreateSessionRequest create;
    create.set_session_id(std::string(absl::StripPrefix(name, "sessions/")));
    v1::BatchNorm& batch_norm = *create.mutable_session()->mutable_spec()->mutable_batch_norm();
    batch_norm.set_layout(v1::LAYOUT_CHANNELS_LAST);
    batch_norm.mutable_running()->set_weighting(v1::WEIGHTING_SAMPLES);
    create.mutable_session()->set_num_channels(file.channels());
    create.mutable_session()->mutable_channel_names()->Add(file.names().begin(), file.names().end());
    session = client.CreateSession(create);
    // Another fit may have been faster.
    if (session.ok() || absl::IsAlreadyExists(session.status())) {
      session = client.GetSession(name, v1::SESSION_VIEW_FULL);
    }
  }
  if (!session.ok()) return session.status();
  return StatisticsOf(*session).status();
}

// Finds what names the files. Two with the same bytes would be counted once, which is hardly what was meant.
absl::Status Identify(std::vector<FittedFile>& files) {
  std::map<std::string, std::string> seen;
  for (FittedFile& file : files) {
    file.times = TimesOf(file.path);
    absl::StatusOr<std::string> digest = FileDigest(file.path);
    if (!digest.ok()) return digest.status();
    file.digest = *std::move(digest);
    const auto [other, is_new] = seen.emplace(file.digest, file.path);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(file.path, " and ", other->second,
                                                     " have the same content, which is counted once: leave one out"));
    }
  }
  return absl::OkStatus();
}

// Fits the files, `jobs` at a time. Returns the first error; the files after it are not begun.
absl::Status FitFiles(Client& client, const std::string& session, const CsvOptions& csv, int64_t jobs,
                      std::vector<FittedFile>& files) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mu;
  absl::Status first;  // guarded by mu
  const auto work = [&] {
    for (size_t i = next++; i < files.size() && !failed; i = next++) {
      const absl::Status status = FileFit(&client, session, &files[i]).Run(csv);
      if (status.ok()) continue;
      failed = true;
      const std::lock_guard<std::mutex> lock(mu);
      if (first.ok()) first = status;
    }
  };
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < std::min<int64_t>(jobs, static_cast<int64_t>(files.size())); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return first;
}

void ReportFit(const std::string& session, const std::vector<FittedFile>& files, const ParsedArgs& args,
               const Terminal& terminal) {
  FittedFile all;
  nlohmann::json json = nlohmann::json::array();
  for (const FittedFile& file : files) {
    all.counted += file.counted;
    all.counted_before += file.counted_before;
    all.not_finite += file.not_finite;
    if (!file.warning.empty()) PrintWarnings({file.warning}, terminal);
    json.push_back({{"file", file.path},
                    {"rows", file.rows},
                    {"counted", file.counted},
                    {"counted_before", file.counted_before},
                    {"not_finite", file.not_finite}});
  }
  if (args.Has("json")) {
    terminal.out << JsonText({{"session", session}, {"files", json}});
    return;
  }
  terminal.out << session << "  " << files.size() << (files.size() == 1 ? " file, " : " files, ") << all.counted
               << " rows counted";
  if (all.counted_before > 0) terminal.out << ", " << all.counted_before << " were counted before";
  if (all.not_finite > 0) terminal.out << ", " << all.not_finite << " values left out: not finite";
  terminal.out << "\n";
}

absl::StatusOr<int64_t> JobsFlag(const ParsedArgs& args) {
  const absl::StatusOr<std::optional<int64_t>> jobs = args.Int("jobs");
  if (!jobs.ok()) return jobs.status();
  const int64_t usual = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kMaxJobs);
  if (jobs->has_value() && (**jobs < 1 || **jobs > kMaxJobs)) {
    return BadValueError("jobs", absl::StrCat(**jobs), absl::StrCat("1 to ", kMaxJobs));
  }
  return jobs->value_or(usual);
}

absl::Status RunFit(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  if (!args.Has("name")) return UsageError("which session? --name NAME");
  const std::string session = SessionName(*args.Get("name"));
  const absl::StatusOr<CsvOptions> csv = CsvFlags(args);
  if (!csv.ok()) return csv.status();
  const absl::StatusOr<int64_t> jobs = JobsFlag(args);
  if (!jobs.ok()) return jobs.status();
  std::vector<FittedFile> files;
  for (const std::string& path : args.operands()) files.push_back({.path = path});
  if (absl::Status status = Identify(files); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<RowFile>> first = RowFile::Open(args.operands()[0], *csv);
  if (!first.ok()) return first.status();
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  if (absl::Status status = PrepareSession(**client, session, **first); !status.ok()) return status;
  if (absl::Status status = FitFiles(**client, session, *csv, *jobs, files); !status.ok()) return status;
  ReportFit(session, files, args, terminal);
  return absl::OkStatus();
}

}  // namespace

std::vector<Command> StatsFitCommands() {
  Command command;
  command.spec = {"stats fit",
                  "FILE...",
                  1,
                  std::numeric_limits<int>::max(),
                  "add the rows of files to shared statistics, each row once",
                  "FILE is a .csv, whose columns are the channels, or a .npy, whose last axis they are. Files are\n"
                  "read in parts, so that memory does not depend on their length, and several at a time. The session\n"
                  "is created if there is none, with the names in the header of the first file; with names, files\n"
                  "with a header are matched by name, and a name that is missing or unknown is an error. A value that\n"
                  "is NaN or infinite is left out alone.\n"
                  "\n"
                  "A run that was killed, or whose server was lost, is started again: rows that were counted are not\n"
                  "counted again. A file is known by its content, wherever it lies and whatever its name is: rows\n"
                  "that are appended to a file that was fitted go into a file of their own.",
                  Join({{"name", 'n', "NAME", "of the session that keeps the statistics"},
                        {"jobs", 'j', "N", "files that are read at a time (default: one a core)"}},
                       Join(HeaderFlags(), SeparatorFlags()))};
  command.run = &RunFit;
  return {command};
}

}  // namespace normd::client

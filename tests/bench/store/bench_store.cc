// The bench of the session store; tests/bench/run.sh store starts it.
//   bench_store [--quick | --smoke] [--only=REGEX] [--json=FILE] [--check=R] [--commit=TEXT]
// --quick  3 shorter rounds and 20,000 sessions instead of 1,000,000.
// --smoke  only whether everything works, in a moment: its figures say nothing, and no floor is checked.
// --only   the rows whose names have the regular expression ("sqlite power C=256 n=64$"), or "many sessions".
// --check  fails when a figure is below R times its floor.
// Files go to TMPDIR. NORMD_TEST_POSTGRES: the URL of a PostgreSQL server; without it none is measured.
#include <libpq-fe.h>
#include <sqlite3.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <regex>
#include <string>

#include "absl/time/time.h"
#include "server/process_setup.h"
#include "tests/bench/machine.h"
#include "tests/bench/report.h"
#include "tests/bench/store/many_sessions.h"
#include "tests/bench/store/or_die.h"
#include "tests/bench/store/place.h"
#include "tests/bench/store/updates.h"

namespace normd::bench {

namespace {

struct Options {
  bool quick = false, smoke = false;
  std::string json, commit = "unknown";
  double check = 0;
  UpdateOptions updates;
  ManySessionsOptions many;
};

// False: not understood.
bool Parse(int count, char** arguments, Options* options) {
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (name == "--quick") {
      options->quick = true;
    } else if (name == "--smoke") {
      options->smoke = true;
    } else if (equals == std::string::npos) {
      return false;
    } else if (name == "--only") {
      options->updates.only = value;
    } else if (name == "--json") {
      options->json = value;
    } else if (name == "--commit") {
      options->commit = value;
    } else if (name == "--check") {
      options->check = std::atof(value.c_str());
    } else {
      return false;
    }
  }
  return true;
}

void Scale(Options* options) {
  options->updates.folder = options->many.folder = std::filesystem::temp_directory_path();
  const char* const url = std::getenv("NORMD_TEST_POSTGRES");
  options->updates.postgres_url = url == nullptr || options->smoke ? "" : url;
  if (options->quick) {
    options->updates.rounds = 3;
    options->updates.round = absl::Milliseconds(300);
    options->updates.warm_up = absl::Milliseconds(100);
    options->many.sessions = 20'000;
  }
  if (options->smoke) {
    options->updates.rounds = 1;
    options->updates.round = options->updates.warm_up = absl::Milliseconds(5);
    options->updates.sessions = 100;
    options->updates.channels = {16};
    options->many.sessions = 400;
  }
}

void NoteRun(const Options& options, Report* report) {
  report->Note("machine", MachineText());
  report->Note("date", DateText());
  report->Note("commit", options.commit);
  report->Note("sqlite", sqlite3_libversion());
  const int libpq = PQlibVersion();
  std::string postgres = "libpq " + std::to_string(libpq / 10000) + "." + std::to_string(libpq % 10000);
  if (!options.updates.postgres_url.empty()) postgres += ", " + PostgresVersion(options.updates.postgres_url);
  report->Note("postgres", postgres);
  report->Note("folder", options.updates.folder + ", " + FileSystemName(options.updates.folder));
  report->Note("write 4 KiB and fdatasync",
               Fixed(absl::ToDoubleMicroseconds(FlushTime(options.updates.folder)), 0) + " us");
  report->Note("rounds", std::to_string(options.updates.rounds) + " of " + absl::FormatDuration(options.updates.round) +
                             ", interleaved, medians");
}

int Run(int count, char** arguments) {
  TuneAllocator();  // as the server does
  Options options;
  if (!Parse(count, arguments, &options)) {
    std::fprintf(stderr,
                 "usage: bench_store [--quick | --smoke] [--only=REGEX] [--json=FILE] [--check=R] [--commit=TEXT]\n");
    return 2;
  }
  Scale(&options);
  Report report("store");
  const absl::Duration watch = options.smoke ? absl::Milliseconds(20) : absl::Seconds(1);
  NoteRun(options, &report);
  NoteForeignCpu("before", watch, &report);
  // First, while this process has allocated nothing that its children could use again unseen.
  if (std::regex_search("many sessions", std::regex(options.updates.only))) MeasureManySessions(options.many, &report);
  MeasureUpdates(options.updates, &report);
  NoteForeignCpu("after", watch, &report);
  if (!options.json.empty() && !report.WriteJson(options.json)) Die("cannot write " + options.json);
  if (options.smoke) return 0;
  std::printf("%s\n", report.FloorsLine().c_str());
  return report.Below(options.check) > 0 ? 1 : 0;
}

}  // namespace

}  // namespace normd::bench

int main(int argc, char** argv) { return normd::bench::Run(argc, argv); }

// The bench of the session store; tests/bench/run.sh store starts it. Its command line is that of suite.h; --only takes
// rows by name ("sqlite power C=256 n=64$") or "many sessions". Files go to TMPDIR. NORMD_TEST_POSTGRES is the URL of a
// PostgreSQL server; without it none is measured.
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/process_setup.h"
#include "tests/bench/comparison.h"
#include "tests/bench/machine.h"
#include "tests/bench/or_die.h"
#include "tests/bench/store/database.h"
#include "tests/bench/store/sections.h"

namespace normd::bench {

namespace {

// The median time of writing 4 KiB at the end of a file in `folder` and fdatasync. Tens of microseconds or less mean
// that the disk does not wait for its medium: then "power" measures software alone.
double FlushMicros(const std::string& folder) {
  const std::string path = folder + "/normd-bench-flush";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const std::string page(4096, 'x');
  std::vector<double> micros;
  for (int i = 0; i < 50; ++i) {
    const absl::Time start = SteadyNow();
    if (write(file, page.data(), page.size()) < 0 || fdatasync(file) != 0) Die("cannot write " + path);
    micros.push_back(absl::ToDoubleMicroseconds(SteadyNow() - start));
  }
  close(file);
  unlink(path.c_str());
  return Median(micros);
}

absl::Status Measure(const Flags& flags, Report* report) {
  const std::string folder = std::filesystem::temp_directory_path();
  report->Note("sqlite", sqlite3_libversion());
  report->Note("postgres", PostgresText());
  report->Note("folder", folder);
  report->Note("write 4 KiB and fdatasync", absl::StrFormat("%.0f us", FlushMicros(folder)));
  if (flags.Chosen("many sessions")) MeasureManySessions(flags, report);
  MeasureUpdates(flags, report);
  return absl::OkStatus();
}

}  // namespace

}  // namespace normd::bench

int main(int argc, char** argv) {
  normd::TuneAllocator();  // as the server does
  const std::optional<normd::bench::Flags> flags = normd::bench::ParseFlags(argc, argv, {});
  if (!flags.has_value()) return 2;
  return normd::bench::RunSuite("store", *flags,
                                [&](normd::bench::Report* report) { return normd::bench::Measure(*flags, report); });
}

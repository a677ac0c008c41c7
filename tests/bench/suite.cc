#include "tests/bench/suite.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "tests/bench/machine.h"

namespace normd::bench {

namespace {

std::optional<std::regex> ParseOnly(const std::string& text) {
  try {
    return std::regex(absl::StrReplaceAll(text, {{",", "|"}}));
  } catch (const std::regex_error&) {
    return std::nullopt;
  }
}

void AddOptions(const std::vector<std::string>& more, CLI::App* app, std::string* only, Flags* flags) {
  app->add_flag("--quick", flags->quick, "fewer and shorter rounds");
  app->add_flag("--smoke", flags->smoke, "whether everything works, in a moment; no floor is checked");
  const auto check = [](const std::string& text) {
    return ParseOnly(text).has_value() ? "" : "not a regular expression";
  };
  app->add_option("--only", *only, "what has this regular expression in its name; a comma means or")->check(check);
  app->add_option("--json", flags->json, "a file for everything that was measured");
  app->add_option("--check", flags->check, "exit status 1 below this share of a floor")->check(CLI::NonNegativeNumber);
  app->add_option("--commit", flags->commit, "what is measured");
  for (const std::string& name : more) {
    if (name == "--peers") app->add_option(name, flags->peers, "PyTorch: a Python that has it, or a file of its times");
    if (name == "--before") app->add_option(name, flags->before, "this program of an earlier build");
    if (name == "--max_isa") app->add_option(name, flags->max_isa, "the instruction set, such as avx2");
    if (name == "--list") app->add_flag(name, flags->list, "prints the shapes as JSON");
    if (name == "--probe") app->add_flag(name, flags->probe, "prints what the device is");
  }
}

}  // namespace

std::optional<Flags> ParseFlags(int argc, char** argv, const std::vector<std::string>& more) {
  Flags flags;
  std::string only;
  CLI::App app("One suite of the bench; tests/bench/run.sh and tests/device/run.sh start it.");
  AddOptions(more, &app, &only, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    app.exit(error);  // says what is wrong, or how the program is called; exits nothing
    return std::nullopt;
  }
  flags.only = *ParseOnly(only);
  return flags;
}

int RunSuite(const std::string& name, const Flags& flags, absl::FunctionRef<absl::Status(Report*)> measure) {
  Report report(name);
  report.Note("machine", MachineText());
  report.Note("date", absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::Now(), absl::UTCTimeZone()));
  report.Note("commit", flags.commit);
  const BackgroundCpu before;
  absl::SleepFor(flags.Pick(absl::Seconds(1), absl::Seconds(1), absl::Milliseconds(20)));
  report.Note("cores busy with others before", absl::StrFormat("%.2f", before.Read()));
  const BackgroundCpu during;
  if (const absl::Status status = measure(&report); !status.ok()) {
    absl::FPrintF(stderr, "%s: %s\n", name, status.ToString());
    return 1;
  }
  report.Note("cores busy with others meanwhile", absl::StrFormat("%.2f", during.Read()));
  if (!flags.json.empty() && !report.WriteJson(flags.json)) {
    absl::FPrintF(stderr, "%s: cannot write %s\n", name, flags.json);
    return 1;
  }
  if (flags.smoke) return 0;
  std::printf("%s\n", report.FloorsLine().c_str());
  if (flags.check > 0 && report.FloorCount() == 0) {
    absl::FPrintF(stderr, "%s: nothing with a floor was measured, so nothing was checked\n", name);
    return 1;
  }
  return report.CountBelow(flags.check) > 0 ? 1 : 0;
}

}  // namespace normd::bench

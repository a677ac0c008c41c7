#include "tests/bench/suite.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "kernels/base/strings.h"
#include "tests/bench/machine.h"
#include "tests/bench/reached.h"

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
  app->add_option("--reached", flags->reached, "a record: --check against what was reached, where that is less");
  app->add_option("--commit", flags->commit, "what is measured");
  for (const std::string& name : more) {
    if (name == "--peers") app->add_option(name, flags->peers, "PyTorch: a Python that has it, or a file of its times");
    if (name == "--before") app->add_option(name, flags->before, "this program of an earlier build");
    if (name == "--max_isa") app->add_option(name, flags->max_isa, "the instruction set, such as avx2");
    if (name == "--nearest") app->add_flag(name, flags->nearest, "whole requests, EXACT beside FAST, instead");
    if (name == "--list") app->add_flag(name, flags->list, "prints the shapes as JSON");
    if (name == "--probe") app->add_flag(name, flags->probe, "prints what the device is");
    if (name == "--more") app->add_flag(name, flags->more_shapes, "shapes that the standard table has not, too");
    if (name == "--turns") app->add_flag(name, flags->turns, "times what standard input asks for");
  }
}

absl::Status MeasureOnce(const Flags& flags, absl::FunctionRef<absl::Status(Report*)> measure, Report* report) {
  report->Note("machine", MachineText());
  report->Note("date", absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::Now(), absl::UTCTimeZone()));
  report->Note("commit", flags.commit);
  const BackgroundCpu before;
  absl::SleepFor(flags.Pick(absl::Seconds(1), absl::Seconds(1), absl::Milliseconds(20)));
  report->Note("cores busy with others before", absl::StrFormat("%.2f", before.Read()));
  const BackgroundCpu during;
  if (absl::Status status = measure(report); !status.ok()) return status;
  report->Note("cores busy with others meanwhile", absl::StrFormat("%.2f", during.Read()));
  if (!flags.json.empty() && !report->WriteJson(flags.json)) {
    return absl::UnavailableError(Concat("cannot write ", flags.json));
  }
  return absl::OkStatus();
}

// What does not pass the check, by name.
absl::StatusOr<std::map<std::string, std::string>> Below(const std::string& suite, const Flags& flags,
                                                         const Report& report) {
  if (flags.reached.empty()) return report.Below(flags.check, nullptr);
  const absl::StatusOr<Reached> reached = Reached::Load(flags.reached, suite, report.NoteOf("instruction set"));
  if (!reached.ok()) return reached.status();
  if (reached->empty()) {
    absl::PrintF("NOT CHECKED: %s has no record of this suite on such a machine\n", flags.reached);
  }
  return report.Below(flags.check, &*reached);
}

std::string Listed(const std::map<std::string, std::string>& figures) {
  return absl::StrJoin(figures, ", ", [](std::string* text, const auto& figure) { *text += figure.second; });
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
  std::map<std::string, std::string> failed;
  const int attempts = flags.check > 0 && !flags.smoke ? 3 : 1;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    Report report(name);
    if (const absl::Status status = MeasureOnce(flags, measure, &report); !status.ok()) {
      absl::FPrintF(stderr, "%s: %s\n", name, status.ToString());
      return 1;
    }
    if (flags.smoke) return 0;
    std::printf("%s\n", report.FloorsLine().c_str());
    if (flags.check <= 0) return 0;
    if (report.FloorCount() == 0) {
      absl::FPrintF(stderr, "%s: nothing with a floor was measured, so nothing was checked\n", name);
      return 1;
    }
    const absl::StatusOr<std::map<std::string, std::string>> below = Below(name, flags, report);
    if (!below.ok()) {
      absl::FPrintF(stderr, "%s: %s\n", name, below.status().message());
      return 1;
    }
    if (attempt == 0) {
      failed = *below;
    } else {
      std::erase_if(failed, [&](const auto& figure) { return !below->contains(figure.first); });
    }
    if (failed.empty()) return 0;
    if (attempt + 1 < attempts) absl::PrintF("not passed, so once more: %s\n\n", Listed(failed));
  }
  absl::FPrintF(stderr, "%s: not passed three times, at %.2g of the limits: %s\n", name, flags.check, Listed(failed));
  return 1;
}

}  // namespace normd::bench

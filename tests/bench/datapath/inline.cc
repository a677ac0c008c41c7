#include "tests/bench/datapath/inline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {

namespace {

constexpr double kCellFloor = 0.75;
constexpr int64_t kSmallBytes = 64 << 10;
const std::vector<std::string> kPeers = {"bytes", "bytes_stock", "bytes_sync", "floats"};

// What is asked of normd, as a share of the echo: geometric means over what is in flight.
struct Floor {
  double requests, cpu;
};
Floor FloorOf(int64_t payload) { return payload <= kSmallBytes ? Floor{0.95, 1.10} : Floor{0.85, 1.30}; }

bool Takes(const std::string& kind, bool stream) { return !stream || kind != "bytes_sync"; }

// How long a round of `kind` is, as a share of the longest. What has no floor needs less.
double ShareOf(const std::string& kind) {
  if (kind == "echo" || kind == "normd") return 1;
  return kind == "bytes" ? 0.5 : 0.25;
}

// One round of one server.
struct Round {
  double per_second = 0;
  double cpu_micros = 0;   // of the server, a request
  double page_faults = 0;  // of the server, a request
};
using Rounds = std::map<std::string, std::vector<Round>>;  // by kind

double MedianOf(const std::vector<Round>& rounds, double Round::*field) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(round.*field);
  return Median(values);
}

// Each round against the one beside it; nothing when a kind was not measured.
std::optional<double> MedianRatio(const Rounds& rounds, const std::string& kind, const std::string& base,
                                  double Round::*field) {
  const auto over = rounds.find(kind);
  const auto under = rounds.find(base);
  if (over == rounds.end() || under == rounds.end()) return std::nullopt;
  std::vector<double> ratios;
  for (size_t i = 0; i < over->second.size(); ++i) ratios.push_back(over->second[i].*field / under->second[i].*field);
  return Median(ratios);
}

class GeometricMean {
 public:
  void Add(std::optional<double> value) {
    if (!value.has_value()) return;
    logarithms_ += std::log(*value);
    ++count_;
  }
  std::optional<double> Read() const {
    return count_ == 0 ? std::nullopt : std::optional<double>(std::exp(logarithms_ / count_));
  }

 private:
  double logarithms_ = 0;
  int count_ = 0;
};

// A server, its connection and what is sent to it.
struct Opponent {
  std::unique_ptr<ServerProcess> server;
  Target target;
};

absl::StatusOr<Round> RunRound(const Opponent& opponent, int in_flight, absl::Duration duration) {
  NORMD_ASSIGN_OR_RETURN(const Usage before, opponent.server->ReadUsage());
  NORMD_ASSIGN_OR_RETURN(const LoopResult result, RunClosedLoop(opponent.target, in_flight, duration));
  NORMD_ASSIGN_OR_RETURN(const Usage after, opponent.server->ReadUsage());
  const auto requests = static_cast<double>(result.requests);
  return Round{.per_second = result.PerSecond(),
               .cpu_micros = absl::ToDoubleMicroseconds(after.cpu - before.cpu) / requests,
               .page_faults = static_cast<double>(after.page_faults - before.page_faults) / requests};
}

// All servers on one transport.
class Race {
 public:
  Race(const InlineOptions& options, std::string transport, Report* report)
      : options_(options), transport_(std::move(transport)), report_(report) {}

  absl::Status Run() {
    NORMD_ASSIGN_OR_RETURN(place_, ListenPlace::Make(transport_));
    for (const std::string& kind : options_.kinds) {
      Opponent opponent;
      NORMD_ASSIGN_OR_RETURN(opponent.server, ServerProcess::Start(kind, place_->Address(kind)));
      opponent.target.channels = NewChannels(opponent.server->address(), 1);
      opponents_.push_back(std::move(opponent));
    }
    for (const std::string& mode : options_.modes) {
      for (const int64_t payload : options_.payloads) NORMD_RETURN_IF_ERROR(RunGroup(mode, payload));
    }
    return absl::OkStatus();
  }

  // Of all cells: the name and the least share of the echo's requests/s.
  const std::pair<std::string, double>& worst() const { return worst_; }

 private:
  // One payload, everything that may be in flight.
  absl::Status RunGroup(const std::string& mode, int64_t payload) {
    const std::string group = absl::StrCat(transport_, " ", mode, " ", BytesText(payload));
    const bool stream = mode == "stream";
    NORMD_RETURN_IF_ERROR(Prepare(stream, payload));
    GeometricMean requests, cpu, echo_over_bytes;
    for (const int in_flight : options_.in_flight) {
      Rounds rounds;
      NORMD_RETURN_IF_ERROR(RunCell(stream, in_flight, &rounds));
      AddCell(absl::StrCat(group, " n=", in_flight), rounds);
      requests.Add(MedianRatio(rounds, "normd", "echo", &Round::per_second));
      cpu.Add(MedianRatio(rounds, "normd", "echo", &Round::cpu_micros));
      echo_over_bytes.Add(MedianRatio(rounds, "echo", "bytes", &Round::per_second));
    }
    AddGroup(group, FloorOf(payload), requests.Read(), cpu.Read());
    if (echo_over_bytes.Read().has_value()) CheckDenominator(group, *echo_over_bytes.Read());
    return absl::OkStatus();
  }

  // Requests for all, and one reply of each that is looked at.
  absl::Status Prepare(bool stream, int64_t payload) {
    NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(payload));
    for (Opponent& opponent : opponents_) {
      const std::string& kind = opponent.server->kind();
      if (!Takes(kind, stream)) continue;
      Target target = MakeTarget(kind, stream, rows);
      target.channels = std::move(opponent.target.channels);
      opponent.target = std::move(target);
      const absl::StatusOr<LoopResult> first = RunClosedLoop(opponent.target, 1, absl::ZeroDuration());
      const absl::Status status = first.ok() ? CheckReply(kind, stream, rows, first->reply) : first.status();
      NORMD_RETURN_IF_ERROR(WithContext(status, kind));
    }
    return absl::OkStatus();
  }

  // The servers take turns, the first one too, so that a slow moment of the machine hits all.
  absl::Status RunCell(bool stream, int in_flight, Rounds* rounds) {
    for (int i = -1; i < options_.rounds; ++i) {
      for (size_t turn = 0; turn < opponents_.size(); ++turn) {
        const Opponent& opponent = opponents_[i % 2 == 0 ? turn : opponents_.size() - 1 - turn];
        const std::string& kind = opponent.server->kind();
        if (!Takes(kind, stream)) continue;
        const absl::Duration duration = (i < 0 ? options_.warm_up : options_.round) * ShareOf(kind);
        const absl::StatusOr<Round> round = RunRound(opponent, in_flight, duration);
        NORMD_RETURN_IF_ERROR(WithContext(round.status(), kind));
        if (i >= 0) (*rounds)[kind].push_back(*round);
      }
    }
    return absl::OkStatus();
  }

  void AddCell(const std::string& name, const Rounds& rounds) {
    std::vector<std::string> cells = {name};
    for (const char* const kind : {"echo", "normd"}) {
      cells.push_back(rounds.contains(kind) ? Short(MedianOf(rounds.at(kind), &Round::per_second)) : "");
    }
    for (const auto& [kind, all] : rounds) {
      report_->Add({absl::StrCat(name, " ", kind), MedianOf(all, &Round::per_second), "requests/s"});
      report_->Add({absl::StrCat(name, " ", kind, " cpu"), MedianOf(all, &Round::cpu_micros), "us/request"});
    }
    const std::optional<double> ratio = AddRatio(name, rounds, "normd", &cells);
    if (ratio.has_value() && (worst_.first.empty() || *ratio < worst_.second)) worst_ = {name, *ratio};
    for (const std::string& kind : kPeers) AddRatio(absl::StrCat(name, " ", kind, " / echo"), rounds, kind, &cells);
    AddCpu(name, rounds, &cells);
    report_->Row(cells);
  }

  std::optional<double> AddRatio(const std::string& name, const Rounds& rounds, const std::string& kind,
                                 std::vector<std::string>* cells) {
    const std::optional<double> ratio = MedianRatio(rounds, kind, "echo", &Round::per_second);
    cells->push_back(ratio.has_value() ? Fixed(*ratio, 2) : "");
    if (ratio.has_value()) report_->Add({name, *ratio, "of the echo"});
    return ratio;
  }

  void AddCpu(const std::string& name, const Rounds& rounds, std::vector<std::string>* cells) {
    for (const char* const kind : {"echo", "normd"}) {
      cells->push_back(rounds.contains(kind) ? Short(MedianOf(rounds.at(kind), &Round::cpu_micros)) : "");
    }
    const std::optional<double> ratio = MedianRatio(rounds, "normd", "echo", &Round::cpu_micros);
    cells->push_back(ratio.has_value() ? Fixed(*ratio, 2) : "");
    if (ratio.has_value()) report_->Add({name + " cpu", *ratio, "of the echo"});
    if (!rounds.contains("normd")) return;
    const double faults = MedianOf(rounds.at("normd"), &Round::page_faults);
    cells->push_back(Fixed(faults, 2));
    report_->Add({name + " page faults", faults, "a request"});
  }

  void AddGroup(const std::string& name, const Floor& floor, std::optional<double> requests,
                std::optional<double> cpu) {
    if (!requests.has_value() || !cpu.has_value()) return;
    report_->Add({name, *requests, "of the echo", floor.requests, {}});
    report_->Add({name + " cpu", *cpu, "of the echo", {}, floor.cpu});
    report_->Row({"  geometric mean", "", "", Fixed(*requests, 2), "", "", "", "", "", "", Fixed(*cpu, 2)});
    report_->Row({"  floor", "", "", Fixed(floor.requests, 2), "", "", "", "", "", "", Fixed(floor.cpu, 2)});
  }

  void CheckDenominator(const std::string& group, double ratio) {
    report_->Add({group + " echo / bytes", ratio, "ratio"});
    if (ratio >= 1) return;
    report_->Note("no denominator: " + group, "the echo makes " + Fixed(ratio, 2) + " of bytes");
  }

  const InlineOptions& options_;
  const std::string transport_;
  Report* const report_;
  std::unique_ptr<ListenPlace> place_;
  std::vector<Opponent> opponents_;
  std::pair<std::string, double> worst_;
};

}  // namespace

absl::Duration EstimateInline(const InlineOptions& options) {
  absl::Duration total;
  const size_t cells = options.transports.size() * options.payloads.size() * options.in_flight.size();
  for (const std::string& mode : options.modes) {
    for (const std::string& kind : options.kinds) {
      if (!Takes(kind, mode == "stream")) continue;
      total += (options.round * options.rounds + options.warm_up) * ShareOf(kind) * static_cast<double>(cells);
    }
  }
  return total;
}

absl::Status MeasureInline(const InlineOptions& options, Report* report) {
  report->Table(
      "requests/s: n in flight, RMSNorm f32 rows of 1024 in the message; medians of rounds; server CPU in us a request;"
      " normd to floats: share of the echo; faults: page faults of normd a request",
      {"", "echo/s", "normd/s", "normd", "bytes", "stock", "sync", "floats", "echo us", "normd us", "cpu", "faults"});
  std::pair<std::string, double> worst;
  for (const std::string& transport : options.transports) {
    Race race(options, transport, report);
    NORMD_RETURN_IF_ERROR(WithContext(race.Run(), transport));
    if (worst.first.empty() || (!race.worst().first.empty() && race.worst().second < worst.second))
      worst = race.worst();
  }
  if (!worst.first.empty()) report->Add({"worst cell, " + worst.first, worst.second, "of the echo", kCellFloor, {}});
  return absl::OkStatus();
}

std::string BytesText(int64_t bytes) {
  if (bytes % (1 << 20) == 0) return absl::StrCat(bytes >> 20, " MiB");
  return absl::StrCat(bytes >> 10, " KiB");
}

}  // namespace normd::bench

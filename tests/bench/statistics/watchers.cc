#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/machine.h"
#include "tests/bench/statistics/counting_session.h"
#include "tests/bench/statistics/sections.h"
#include "tests/bench/statistics/watching.h"

namespace normd::bench {
namespace {

constexpr double kMostKilobytes = 20;  // of 1,000 bytes, a watcher
constexpr absl::Duration kPatience = absl::Seconds(60);
// On one connection, by default.
constexpr int kStreamsAllowed = 8;
// What the first watchers leave behind is not theirs alone.
constexpr int kFirstWatchers = 16;

// Contributors in threads of their own, each of which flushes once a second, so that the session moves ten times a
// second even where an answer takes that long. From construction to Stop.
class Movers {
 public:
  Movers(Client* client, int64_t channels) {
    for (int i = 0; i < kMovers; ++i) threads_.emplace_back([this, client, channels, i] { Run(client, channels, i); });
  }
  ~Movers() { Stop(); }

  void Stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  uint64_t moves() const { return moves_; }
  bool failed() const { return failed_; }

 private:
  void Run(Client* client, int64_t channels, int contributor) {
    absl::Time due = SteadyNow() + contributor * absl::Seconds(1) / kMovers;
    for (uint64_t sequence = 1; !stopping_; ++sequence, due += absl::Seconds(1)) {
      absl::SleepFor(due - SteadyNow());
      if (!client->CommitMoments(FlushOf(channels, contributor, sequence)).ok()) failed_ = true;
      ++moves_;
    }
  }

  static constexpr int kMovers = 10;

  std::atomic<bool> stopping_{false}, failed_{false};
  std::atomic<uint64_t> moves_{0};
  std::vector<std::thread> threads_;
};

struct Watch {
  int watchers = 0;
  int per_connection = 0;
  int64_t channels = 0;
  absl::Duration duration;
};

absl::Status MeasureWatch(const std::string& name, const Watch& watch, Report* report) {
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<CountingServer> server, CountingServer::Start(watch.channels));
  Watching watching;
  NORMD_RETURN_IF_ERROR(watching.Open(server->address(), kSessionName, kFirstWatchers, watch.per_connection));
  NORMD_RETURN_IF_ERROR(watching.ReadFirstVersions(kPatience));
  const auto bytes = [&server, before = server->ResidentBytes(), &watch] {
    return static_cast<double>(server->ResidentBytes() - before) / watch.watchers / 1000;
  };
  NORMD_RETURN_IF_ERROR(watching.Open(server->address(), kSessionName, watch.watchers, watch.per_connection));
  NORMD_RETURN_IF_ERROR(watching.ReadFirstVersions(kPatience));
  const double resting = bytes();
  const int64_t versions = watching.versions();
  NORMD_ASSIGN_OR_RETURN(const absl::Duration before, server->CpuTime());
  Movers movers(&server->client(), watch.channels);
  NORMD_RETURN_IF_ERROR(watching.ReadUntil(SteadyNow() + watch.duration));
  NORMD_ASSIGN_OR_RETURN(const absl::Duration after, server->CpuTime());
  const double seconds = absl::ToDoubleSeconds(watch.duration);
  const auto moves = static_cast<double>(movers.moves());
  const auto sent = static_cast<double>(watching.versions() - versions);
  const double moving = bytes();
  movers.Stop();
  if (movers.failed()) return absl::InternalError("a flush failed");
  report->Row(name, {Ratio(resting, {}, kMostKilobytes), Ratio(moving, {}, kMostKilobytes), Amount(moves / seconds),
                     Amount(sent / seconds), Ratio(sent / moves / static_cast<double>(watching.streams())),
                     Ratio(absl::ToDoubleMicroseconds(after - before) / sent),
                     Ratio(absl::ToDoubleSeconds(after - before) / seconds)});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureWatchers(const Flags& flags, Report* report) {
  report->Table(
      "watchers of a session that moves 10 times a second: resident memory of each at rest and then (at most), "
      "versions "
      "sent and their share of all, the server's CPU for each version",
      {"kB resting", "kB moving", "moves/s", "versions/s", "share", "CPU us", "cores"});
  const int watchers = flags.Pick(10000, 2000, 64);
  for (const int64_t channels : {8, 376}) {
    for (const int per_connection : {kStreamsAllowed, 1}) {
      const std::string name = Concat("watchers ", per_connection, " a connection C=", channels);
      if (!flags.Chosen(name)) continue;
      const Watch watch = {watchers, per_connection, channels, absl::Seconds(flags.Pick(20.0, 5.0, 0.5))};
      NORMD_RETURN_IF_ERROR(WithContext(MeasureWatch(name, watch, report), name));
    }
  }
  return absl::OkStatus();
}

}  // namespace normd::bench

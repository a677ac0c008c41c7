// crash_child: opens a session store, tells what it holds, and trains on it until it is killed. It reports through its
// standard output (report.h); every attempt before the store is asked, every answer after it has come.
//   crash_child --store=sqlite|postgres|memory --at=FOLDER|URL --level=memory|process|power [--resume=S.C.ACK.ATT,...]
//               [--check] [--acknowledge-early]
// --resume             of client C of session S: the last sequences acknowledged and attempted. The acknowledged step
// is
//                      sent again, to be known; the attempted one is sent again, to be applied if it was not.
// --check              tells what the store holds, closes it and ends.
// --acknowledge-early  a planted error: clients that are alone on a session report their steps as acknowledged as soon
//                      as the store has been asked.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/session/durable/durable_store.h"
#include "server/session/memory/memory_store.h"
#include "server/session/postgres/postgres_table.h"
#include "server/session/sqlite/sqlite_table.h"
#include "tests/crash/flags.h"
#include "tests/crash/report.h"
#include "tests/crash/steps.h"

namespace normd::crash {

namespace {

// Nothing can be proved after an error that no step should meet; the parent takes the early end for a violation.
[[noreturn]] void Die(const std::string& what, const absl::Status& status) {
  std::fprintf(stderr, "crash_child: %s: %s\n", what.c_str(), status.ToString().c_str());
  _exit(3);
}

template <typename T>
T OrDie(const std::string& what, absl::StatusOr<T> result) {
  if (!result.ok()) Die(what, result.status());
  return *std::move(result);
}

// Standard output without a buffer. A parent that is gone ends the child with SIGPIPE.
void WriteAll(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(STDOUT_FILENO, bytes, size);
    if (written < 0) Die("write", absl::InternalError("the pipe is broken"));
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

void Send(const Report& report) { WriteAll(&report, sizeof(report)); }

// What `call(done)` hands to done.
template <typename T, typename Call>
absl::StatusOr<T> Wait(Call call) {
  std::promise<absl::StatusOr<T>> promise;
  std::future<absl::StatusOr<T>> result = promise.get_future();
  call([&promise](absl::StatusOr<T> answer) { promise.set_value(std::move(answer)); });
  return result.get();
}

StoreTables OpenTables(const Flags& flags, Durability durability) {
  const std::string at = flags.Get("at");
  if (flags.Get("store") == "postgres") {
    const PostgresOptions options = {.url = at, .durability = durability};
    return {OrDie("open", PostgresTable::Open(options)), OrDie("open", PostgresTable::Open(options)),
            OrDie("open", PostgresTable::Open(options))};
  }
  std::unique_ptr<SqliteTable> writer =
      OrDie("open", SqliteTable::Open({.path = at + "/" + kSqliteFileName, .durability = durability}));
  StoreTables tables;
  tables.reader = OrDie("open", writer->OpenReader());
  tables.lister = OrDie("open", writer->OpenReader());
  tables.writer = std::move(writer);
  return tables;
}

std::unique_ptr<SessionStore> OpenStore(const Flags& flags, Clock* clock) {
  DurableStoreOptions options;
  if (flags.Get("store") == "memory") return std::make_unique<MemoryStore>(options.limits, clock);
  options.durability = flags.Get("level") == "process" ? Durability::kProcess : Durability::kPower;
  return OrDie("open", DurableStore::Open(options, OpenTables(flags, options.durability), clock));
}

NormSpec SpecOf(Law law) {
  if (law == Law::kPower) return {.attributes = PowerNormSpec{.alpha_fwd = kAlpha, .warmup_iters = kWarmupSteps}};
  BatchNormSpec batch = {.layout = Layout::kChannelsLast};
  if (law == Law::kSamples) {
    batch.running.weighting = Weighting::kSamples;
    batch.running.variance = RunningVariance::kBiased;
  }
  batch.running.cumulative = law == Law::kCumulative;
  if (law == Law::kMomentum) batch.running.momentum = kMomentumOfNew;
  return {.attributes = batch};
}

class Child {
 public:
  Child(SessionStore* store, const Flags& flags) : store_(store), early_(flags.Has("acknowledge-early")) {
    std::istringstream resume(flags.Get("resume"));
    for (std::string entry; std::getline(resume, entry, ',');) {
      std::istringstream fields(entry);
      int session = 0;
      int client = 0;
      Position position;
      char dot = 0;
      fields >> session >> dot >> client >> dot >> position.acknowledged >> dot >> position.attempted;
      positions_[{session, client}] = position;
    }
  }

  // Tells what the store holds.
  void TellSnapshots() {
    const std::vector<SessionPtr> sessions =
        OrDie("list", Wait<ListPage>([&](auto done) { store_->List({}, done); })).sessions;
    Send({.kind = ReportKind::kOpened, .number = sessions.size()});
    for (const SessionPtr& session : sessions) {
      for (int i = 0; i < kNumSessions; ++i) {
        if (session->id == kSessions[i].id) found_.insert(i);
      }
    }
    for (int i = 0; i < kNumSessions; ++i) {
      if (found_.count(i) == 0) continue;
      const std::string record = OrDie(
          "export", Wait<std::string>([&](auto done) { store_->Export(kSessions[i].id, nullptr, std::move(done)); }));
      Send({.kind = ReportKind::kSnapshot, .session = i, .number = record.size()});
      WriteAll(record.data(), record.size());
    }
  }

  void CreateMissing() {
    for (int i = 0; i < kNumSessions; ++i) {
      Session session;
      session.id = kSessions[i].id;
      session.spec = SpecOf(kSessions[i].law);
      session.num_channels = kSessions[i].channels;
      if (found_.count(i) == 0) {
        const SessionPtr created =
            OrDie("create", Wait<SessionPtr>([&](auto done) { store_->Create(std::move(session), std::move(done)); }));
        epochs_[i] = created->uid;
        Report report = {.kind = ReportKind::kCreated, .session = i};
        report.SetEpoch(created->uid);
        Send(report);
      } else {
        epochs_[i] = OrDie("get", Wait<SessionPtr>([&](auto done) {
                             store_->Get(kSessions[i].id, absl::ZeroDuration(), std::move(done));
                           }))
                         ->uid;
      }
    }
  }

  // Returns only if every client ended, which none does.
  void Train() {
    Send({.kind = ReportKind::kReady});
    std::vector<std::thread> clients;
    for (int session = 0; session < kNumSessions; ++session) {
      for (int client = 0; client < kSessions[session].clients; ++client) {
        clients.emplace_back([this, session, client] { RunClient(session, client); });
      }
    }
    clients.emplace_back([this] { Read(); });
    for (std::thread& client : clients) client.join();
  }

 private:
  struct Position {
    uint64_t acknowledged = 0;
    uint64_t attempted = 0;
  };

  [[noreturn]] void RunClient(int session, int client) {
    const Position position = positions_[{session, client}];
    if (position.acknowledged > 0) TakeStep({session, client, position.acknowledged});
    for (uint64_t sequence = position.acknowledged + 1;; ++sequence) {
      TakeStep({session, client, sequence});
      const uint64_t old = OldStepAfter(sequence);
      if (old > 0 && !early_) TakeStep({session, client, old});
    }
  }

  // What readers were given must be there after the next kill, too.
  [[noreturn]] void Read() {
    for (int i = 0;; i = (i + 1) % kNumSessions) {
      const absl::StatusOr<SessionPtr> session =
          Wait<SessionPtr>([&](auto done) { store_->Get(kSessions[i].id, absl::ZeroDuration(), std::move(done)); });
      if (session.ok()) Send({.kind = ReportKind::kSeen, .session = i, .number = (*session)->version});
      if (!session.ok() && !absl::IsUnavailable(session.status())) Die("get", session.status());
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  }

  // The next multiple of 4 ms: all clients try again at one time, so that the store sees them in one group.
  static void WaitForTick() {
    constexpr std::chrono::milliseconds kTick(4);
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    std::this_thread::sleep_for(kTick - now % kTick);
  }

  void TakeStep(const StepKey& step) {
    Send({.kind = ReportKind::kAttempt, .session = step.session, .client = step.client, .sequence = step.sequence});
    std::future<absl::StatusOr<CommitResult>> result = Submit(step);
    Report report = {.kind = ReportKind::kAcknowledge,
                     .session = step.session,
                     .client = step.client,
                     .sequence = step.sequence,
                     .number = step.sequence};
    // A step sent again may well be a replay, which only the answer tells; so the planted error spares those.
    const bool early = early_ && kSessions[step.session].clients == 1 &&
                       step.sequence > positions_.at({step.session, step.client}).attempted;
    if (early) {
      report.SetEpoch(epochs_[step.session]);
      Send(report);
    }
    absl::StatusOr<CommitResult> answer = result.get();
    // The database went away: the step may have been taken or not, which its id settles.
    while (absl::IsUnavailable(answer.status())) {
      WaitForTick();
      answer = Submit(step).get();
    }
    if (!answer.ok()) Die(ToString(step), answer.status());
    if (early) return;
    report.number = answer->version;
    report.replayed = answer->replayed ? 1 : 0;
    report.SetEpoch(answer->uid);
    Send(report);
  }

  std::future<absl::StatusOr<CommitResult>> Submit(const StepKey& step) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<CommitResult>>>();
    StateUpdate update;
    update.id = kSessions[step.session].id;
    update.moments = StepMoments(step);
    if (kSessions[step.session].law == Law::kSamples) {
      StepExtremes extremes = ExtremesOf(step);
      update.details.extremes = {.min = std::move(extremes.min), .max = std::move(extremes.max)};
    }
    update.step = StepId{ClientName(step.client), step.sequence};
    store_->Commit(std::move(update),
                   [promise](absl::StatusOr<CommitResult> result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }

  SessionStore* const store_;
  const bool early_;
  std::map<std::pair<int, int>, Position> positions_;  // by session and client
  std::set<int> found_;                                // sessions that the store had
  std::string epochs_[kNumSessions];
};

int Main(int argc, char** argv) {
  const Flags flags(argc, argv);
  SystemClock clock;
  const std::unique_ptr<SessionStore> store = OpenStore(flags, &clock);
  Child child(store.get(), flags);
  child.TellSnapshots();
  if (flags.Has("check")) return 0;
  child.CreateMissing();
  child.Train();
  return 0;
}

}  // namespace

}  // namespace normd::crash

int main(int argc, char** argv) { return normd::crash::Main(argc, argv); }

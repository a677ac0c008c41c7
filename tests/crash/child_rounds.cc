#include "tests/crash/child_rounds.h"

#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "tests/crash/rounds.h"

namespace normd::crash {

namespace {

// One child in so many is killed while it starts: recovery is interrupted, too.
constexpr int kEarlyChildKillOneIn = 8;

}  // namespace

ChildRounds::ChildRounds(ChildOptions options, std::mt19937_64* random, Ledger* ledger)
    : options_(std::move(options)), random_(random), ledger_(ledger) {}

int64_t ChildRounds::Run() {
  const int64_t postmaster_every = options_.postmaster_kills > 0 ? options_.kills / options_.postmaster_kills : 0;
  int64_t kills = 0;
  while (kills < options_.kills && ledger_->ok()) {
    ++kills;
    RunRound(postmaster_every > 0 && kills % postmaster_every == 0);
  }
  if (options_.level == "memory") return kills;
  // As the last kill left it, and as the first clean end left it.
  for (int i = 0; i < 2 && ledger_->ok(); ++i) CheckOnce();
  return kills;
}

std::vector<std::string> ChildRounds::Arguments() const {
  std::string resume;
  for (int session = 0; session < kNumSessions; ++session) {
    for (int client = 0; client < kSessions[session].clients; ++client) {
      resume += std::to_string(session) + "." + std::to_string(client) + "." +
                std::to_string(ledger_->LastAcknowledged(session, client)) + "." +
                std::to_string(ledger_->LastAttempted(session, client)) + ",";
    }
  }
  std::vector<std::string> arguments = {options_.program, "--store=" + options_.store, "--at=" + options_.at,
                                        "--level=" + options_.level, "--resume=" + resume};
  if (options_.acknowledge_early) arguments.emplace_back("--acknowledge-early");
  return arguments;
}

void ChildRounds::RunRound(bool kill_postmaster) {
  if (options_.level == "memory") ledger_->StartAnew();
  Process child(Arguments());
  const bool early = !kill_postmaster && std::uniform_int_distribution<int>(1, kEarlyChildKillOneIn)(*random_) == 1;
  bool lives = true;
  if (!early) {
    lives = Follow(&child, absl::Now() + kPatience, /*until_ready=*/true);
    if (lives && !ready_) ledger_->ReportMismatch("the child did not get ready");
  }
  if (lives) lives = Follow(&child, absl::Now() + Draw(2, 17, random_), /*until_ready=*/false);
  if (lives && kill_postmaster) KillPostmaster(&child);
  if (!child.Kill()) ledger_->ReportMismatch("the child ended by itself");
  Follow(&child, absl::InfiniteFuture(), /*until_ready=*/false);  // what is left in the pipe
  pending_.clear();
  snapshot_bytes_ = 0;
  ready_ = false;
}

void ChildRounds::CheckOnce() {
  std::vector<std::string> arguments = Arguments();
  arguments.emplace_back("--check");
  Process child(arguments);
  while (Follow(&child, absl::Now() + kPatience, /*until_ready=*/false)) {
    ledger_->ReportMismatch("the checking child does not end");
    return;
  }
  if (child.Wait(kPatience) != 0) ledger_->ReportMismatch("the checking child failed");
  for (int session = 0; session < kNumSessions; ++session) {
    if (found_.empty() || !found_[session]) ledger_->CheckAbsent(session);
  }
}

void ChildRounds::KillPostmaster(Process* child) {
  // The child finds out by itself, retries, and goes on: nobody tells it anything.
  const absl::Status status = options_.postgres.CrashAndRestart();
  if (!status.ok()) return ledger_->ReportMismatch(status.ToString());
  ++postmaster_kills_;
  if (!Follow(child, absl::Now() + absl::Milliseconds(1), false)) return;
  constexpr int64_t kEnoughSteps = 50;
  const int64_t enough = ledger_->TotalAcknowledged() + kEnoughSteps;
  const absl::Time deadline = absl::Now() + kPatience;
  while (ledger_->TotalAcknowledged() < enough) {
    if (!Follow(child, absl::Now() + absl::Milliseconds(5), false)) return;
    if (absl::Now() > deadline) return ledger_->ReportLost("the child does not go on after PostgreSQL came back");
  }
}

bool ChildRounds::Follow(Process* child, absl::Time deadline, bool until_ready) {
  while (!(until_ready && ready_) && absl::Now() < deadline) {
    // In small portions when waiting for it to be ready, so that the clock of the kill starts then.
    const absl::Time next = until_ready ? absl::Now() + absl::Microseconds(200) : deadline;
    if (!child->ReadUntil(next, [this](std::string_view bytes) { Take(bytes); })) return false;
  }
  return true;
}

void ChildRounds::Take(std::string_view bytes) {
  pending_.append(bytes);
  size_t at = 0;
  while (true) {
    const size_t wanted = snapshot_bytes_ > 0 ? snapshot_bytes_ : sizeof(Report);
    if (pending_.size() - at < wanted) break;
    if (snapshot_bytes_ > 0) {
      Ledger::Found found;
      found.known = ledger_->KnownOf(snapshot_session_);
      found.record = pending_.substr(at, wanted);
      found.at_rest = true;
      ledger_->Check(snapshot_session_, found);
      snapshot_bytes_ = 0;
    } else {
      Report report;
      std::memcpy(&report, pending_.data() + at, sizeof(report));
      TakeReport(report);
    }
    at += wanted;
  }
  pending_.erase(0, at);
}

void ChildRounds::TakeReport(const Report& report) {
  switch (report.kind) {
    case ReportKind::kOpened:
      found_.assign(kNumSessions, false);
      if (options_.level == "memory" && report.number != 0) {
        ledger_->ReportMismatch("a restarted memory store has " + std::to_string(report.number) + " sessions");
      }
      break;
    case ReportKind::kSnapshot:
      snapshot_session_ = report.session;
      snapshot_bytes_ = report.number;
      found_[report.session] = true;
      break;
    case ReportKind::kCreated:
      // The child creates what it did not find.
      ledger_->CheckAbsent(report.session);
      ledger_->Created(report.session, report.epoch_text());
      break;
    case ReportKind::kReady:
      ready_ = true;
      break;
    case ReportKind::kAttempt:
      ledger_->Attempted(report.step());
      break;
    case ReportKind::kAcknowledge:
      ledger_->Acknowledged(report.step(), {report.number, report.epoch_text(), report.replayed != 0});
      break;
    case ReportKind::kSeen:
      ledger_->Seen(report.session, report.number, /*known=*/0);  // what it knew when it asked is not told
      break;
  }
}

}  // namespace normd::crash

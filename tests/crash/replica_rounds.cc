#include "tests/crash/replica_rounds.h"

#include <signal.h>

#include <fstream>
#include <future>
#include <iostream>
#include <sstream>
#include <utility>

#include "absl/time/clock.h"
#include "httplib.h"
#include "kernels/base/status_macros.h"
#include "tests/crash/rounds.h"

namespace normd::crash {

namespace {

// Long enough for a stopped replica's row locks to be taken from it (idle_in_transaction_session_timeout).
constexpr absl::Duration kAttempt = absl::Seconds(1);
constexpr uint64_t kFewSteps = 3;
constexpr int kHot = kNumSessions - 1;

std::string ReplicaName(int which) { return which == 0 ? "a" : "b"; }

std::vector<std::string> ReplicaArguments(const ReplicaOptions& options, int which) {
  return {"--session_store=" + options.url, "--durability=power", "--admin_listen=127.0.0.1:0",
          "--port_file=" + options.folder + "/" + ReplicaName(which) + ".ports"};
}

}  // namespace

ReplicaRounds::ReplicaRounds(const ReplicaOptions& options, std::mt19937_64* random, Ledger* ledger)
    : options_(options),
      random_(random),
      ledger_(ledger),
      replicas_{{options.program, options.folder, "a", ReplicaArguments(options, 0)},
                {options.program, options.folder, "b", ReplicaArguments(options, 1)}} {}

int64_t ReplicaRounds::Run() {
  const absl::Status status = RunAll();
  if (!status.ok()) ledger_->ReportMismatch("replicas: " + status.ToString());
  // A stopped one would never answer its clients.
  for (ServerProcess& replica : replicas_) {
    if (replica.running()) replica.Signal(SIGCONT);
  }
  trainers_ = nullptr;
  std::cerr << "  " << pauses_ << " pauses, " << pauses_in_flight_ << " of them with steps on their way; " << refused_
            << " stale writes refused with ABORTED; " << kills_ << " kills, " << postgres_kills_ << " of PostgreSQL; "
            << conflicts_ << " conflicts between the replicas before all that\n";
  return kills_;
}

absl::Status ReplicaRounds::RunAll() {
  NORMD_RETURN_IF_ERROR(StartBoth());
  NORMD_RETURN_IF_ERROR(GoOn("the start"));
  NORMD_RETURN_IF_ERROR(MeetOnce());
  for (int64_t i = 0; i < options_.pauses && ledger_->ok(); ++i) {
    NORMD_RETURN_IF_ERROR(Pause(static_cast<int>(i % 2)));
    NORMD_RETURN_IF_ERROR(Kill(static_cast<int>(i % 2)));
    NORMD_RETURN_IF_ERROR(KillPostgres());
  }
  return ledger_->ok() ? End() : absl::OkStatus();
}

absl::Status ReplicaRounds::StartBoth() {
  for (int i = 0; i < 2; ++i) {
    replicas_[i].Start();
    NORMD_ASSIGN_OR_RETURN(clients_[i], replicas_[i].WaitUntilItAnswers(kPatience));
  }
  NORMD_RETURN_IF_ERROR(CreateSessions(*clients_[0], ledger_));
  trainers_ = std::make_unique<Trainers>(
      TrainerOptions{.targets = {replicas_[0].target(), replicas_[1].target()}, .deadline = kAttempt}, ledger_);
  return absl::OkStatus();
}

absl::Status ReplicaRounds::GoOn(const std::string& after) {
  if (!trainers_->WaitForSteps(kFewSteps, /*every_client=*/true, kPatience) && ledger_->ok()) {
    return absl::DeadlineExceededError("clients do not go on after " + after);
  }
  return absl::OkStatus();
}

absl::Status ReplicaRounds::CheckBoth() {
  for (const std::unique_ptr<Client>& client : clients_) NORMD_RETURN_IF_ERROR(CheckSessions(*client, ledger_));
  return absl::OkStatus();
}

absl::Status ReplicaRounds::Pause(int which) {
  ServerProcess& paused = replicas_[which];
  Client& other = *clients_[1 - which];
  const std::string name = std::string("sessions/") + kSessions[kHot].id;
  NORMD_ASSIGN_OR_RETURN(const v1::Session before, other.GetSession(name));
  absl::SleepFor(absl::Microseconds(std::uniform_int_distribution<int>(2000, 40000)(*random_)));
  paused.Signal(SIGSTOP);
  ++pauses_;
  if (ledger_->InFlight() > 0) ++pauses_in_flight_;
  // Arrives at the stopped one, and is read when the session has moved on. Nobody knows this client: if the step were
  // taken, the next check would find it.
  const StepKey stale = {kHot, 99, static_cast<uint64_t>(pauses_)};
  Client& late = *clients_[which];
  std::future<absl::Status> refused = std::async(
      std::launch::async, [&late, stale, &before] { return SendStep(late, stale, before.version()).status(); });
  absl::Status status = GoOn("a replica was stopped");
  if (status.ok()) status = CheckSessions(other, ledger_);
  paused.Signal(SIGCONT);
  const absl::Status answer = refused.get();
  NORMD_RETURN_IF_ERROR(status);
  if (absl::IsAborted(answer)) {
    ++refused_;
  } else {
    ledger_->ReportMismatch("a stale write through a replica that was stopped: " + answer.ToString());
  }
  NORMD_RETURN_IF_ERROR(GoOn("a replica went on"));
  return CheckBoth();
}

absl::Status ReplicaRounds::Kill(int which) {
  absl::SleepFor(absl::Microseconds(std::uniform_int_distribution<int>(2000, 40000)(*random_)));
  if (!replicas_[which].Kill()) ledger_->ReportMismatch("normd ended by itself: " + replicas_[which].LogTail());
  ++kills_;
  NORMD_RETURN_IF_ERROR(GoOn("a replica was killed"));
  replicas_[which].Start();
  NORMD_ASSIGN_OR_RETURN(clients_[which], replicas_[which].WaitUntilItAnswers(kPatience));
  return CheckBoth();
}

absl::Status ReplicaRounds::KillPostgres() {
  NORMD_RETURN_IF_ERROR(options_.postgres.CrashAndRestart());
  ++postgres_kills_;
  NORMD_RETURN_IF_ERROR(GoOn("PostgreSQL was killed"));
  return CheckBoth();
}

absl::Status ReplicaRounds::End() {
  trainers_->Finish();
  NORMD_RETURN_IF_ERROR(CheckBoth());
  ledger_->CheckSettled();
  for (ServerProcess& replica : replicas_) {
    if (const int status = replica.Stop(kPatience); status != 0) {
      return absl::InternalError("normd ended with status " + std::to_string(status) + ": " + replica.LogTail());
    }
  }
  return absl::OkStatus();
}

absl::Status ReplicaRounds::MeetOnce() {
  const absl::Time deadline = absl::Now() + kPatience;
  do {
    NORMD_RETURN_IF_ERROR(GoOn("the start"));
    conflicts_ = 0;
    for (int i = 0; i < 2; ++i) {
      NORMD_ASSIGN_OR_RETURN(const int64_t conflicts, Conflicts(i));
      conflicts_ += conflicts;
    }
  } while (conflicts_ == 0 && ledger_->ok() && absl::Now() < deadline);
  if (conflicts_ > 0 || !ledger_->ok()) return absl::OkStatus();
  return absl::InternalError("there was not one conflict: the replicas did not meet");
}

absl::StatusOr<int64_t> ReplicaRounds::Conflicts(int which) const {
  std::ifstream ports(options_.folder + "/" + ReplicaName(which) + ".ports");
  std::string address;
  for (std::string line; std::getline(ports, line);) {
    if (line.rfind("admin=", 0) == 0) address = line.substr(6);
  }
  httplib::Client admin("http://" + address);
  const httplib::Result page = admin.Get("/metrics");
  if (!page) return absl::UnavailableError("no metrics from " + address);
  std::istringstream lines(page->body);
  const std::string name = "normd_store_conflicts_total ";
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name, 0) == 0) return static_cast<int64_t>(std::stod(line.substr(name.size())));
  }
  return absl::NotFoundError(name);
}

}  // namespace normd::crash

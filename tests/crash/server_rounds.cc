#include "tests/crash/server_rounds.h"

#include <iostream>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "tests/crash/rounds.h"

namespace normd::crash {

namespace {

// One server in so many is killed while it starts, beside the kills that count; and one in so many only after every
// client got through to it, those too whose channel waits between attempts to connect.
constexpr int64_t kEarlyServerKillOneIn = 10;
constexpr int64_t kEveryClientOneIn = 8;

std::vector<std::string> ServerArguments(const ServerOptions& options) {
  return {"--admin_listen=", "--durability=" + options.level, "--data_dir=" + options.folder + "/data"};
}

}  // namespace

ServerRounds::ServerRounds(const ServerOptions& options, std::mt19937_64* random, Ledger* ledger)
    : options_(options),
      random_(random),
      ledger_(ledger),
      server_(options.program, options.folder, "normd", ServerArguments(options)) {}

int64_t ServerRounds::Run() {
  absl::Status status;
  while (kills_ < options_.kills && status.ok() && ledger_->ok()) status = RunRound();
  if (status.ok() && ledger_->ok() && kills_ > 0) status = End();
  if (!status.ok()) ledger_->ReportMismatch("a request that must succeed failed: " + status.ToString());
  trainers_ = nullptr;
  std::cerr << "  " << kills_ << " kills of normd, " << kills_in_flight_ << " of them with steps on their way, and "
            << early_kills_ << " while it started\n";
  return kills_;
}

absl::Status ServerRounds::RunRound() {
  server_.Start();
  if (std::uniform_int_distribution<int64_t>(1, kEarlyServerKillOneIn)(*random_) == 1) {
    absl::SleepFor(Draw(0, 30, random_));
    Kill();
    ++early_kills_;
    return absl::OkStatus();
  }
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, server_.WaitUntilItAnswers(kPatience));
  NORMD_RETURN_IF_ERROR(Begin(*client));
  if (trainers_ == nullptr) {
    trainers_ = std::make_unique<Trainers>(TrainerOptions{.targets = {server_.target()}, .patient_half = !in_memory()},
                                           ledger_);
  }
  trainers_->SetServing(true);
  if (!trainers_->WaitForSteps(1, kills_ % kEveryClientOneIn == 0, kPatience) && ledger_->ok()) {
    return absl::DeadlineExceededError("clients do not get through to the restarted server");
  }
  absl::SleepFor(Draw(2, 40, random_));
  if (in_memory()) NORMD_RETURN_IF_ERROR(CheckSessions(*client, ledger_));
  if (ledger_->InFlight() > 0) ++kills_in_flight_;
  Kill();
  ++kills_;
  return absl::OkStatus();
}

absl::Status ServerRounds::Begin(Client& client) {
  v1::ListSessionsRequest request;
  NORMD_ASSIGN_OR_RETURN(const v1::ListSessionsResponse list, client.ListSessions(request));
  const bool first = !ledger_->IsCreated(0);
  if (!first && !in_memory()) return CheckSessions(client, ledger_);
  if (in_memory()) ledger_->StartAnew();
  if (list.sessions_size() > 0) {
    ledger_->ReportMismatch("a new store has " + std::to_string(list.sessions_size()) + " sessions");
  }
  return CreateSessions(client, ledger_);
}

void ServerRounds::Kill() {
  if (!server_.Kill()) ledger_->ReportMismatch("normd ended by itself: " + server_.LogTail());
  if (trainers_ == nullptr) return;
  trainers_->SetServing(false);
  // The next server has other sessions: a step of before must not reach them.
  if (in_memory()) trainers_ = nullptr;
}

absl::Status ServerRounds::End() {
  if (in_memory()) return absl::OkStatus();
  server_.Start();
  NORMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, server_.WaitUntilItAnswers(kPatience));
  trainers_->SetServing(true);
  trainers_->Finish();
  NORMD_RETURN_IF_ERROR(CheckSessions(*client, ledger_));
  ledger_->CheckSettled();
  NORMD_RETURN_IF_ERROR(StopCleanly());
  server_.Start();
  NORMD_ASSIGN_OR_RETURN(client, server_.WaitUntilItAnswers(kPatience));
  NORMD_RETURN_IF_ERROR(CheckSessions(*client, ledger_));
  ledger_->CheckSettled();
  return StopCleanly();
}

absl::Status ServerRounds::StopCleanly() {
  const int status = server_.Stop(kPatience);
  if (status == 0) return absl::OkStatus();
  return absl::InternalError("normd ended with status " + std::to_string(status) + ": " + server_.LogTail());
}

}  // namespace normd::crash

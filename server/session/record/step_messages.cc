#include "server/session/record/step_messages.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/session/session_checks.h"

namespace normd {

namespace {

using Record = store::v1::SessionRecord;

absl::StatusOr<ClientSteps> ClientFromMessage(const store::v1::ClientRecord& message) {
  NORMD_RETURN_IF_ERROR(CheckStepIdSize({message.client_id(), message.last_sequence()}));
  ClientSteps client = {.last_sequence = message.last_sequence(), .outcomes = {}};
  uint64_t last = 0;
  for (const store::v1::Outcome& outcome : message.outcomes()) {
    if (outcome.sequence() <= last) return BadStepsError("sequences that do not rise");
    if (outcome.reason() != v1::REASON_APPLIED && outcome.reason() != v1::REASON_NON_FINITE) {
      return BadStepsError("an outcome with another reason than APPLIED and NON_FINITE");
    }
    if (outcome.applied() != (outcome.reason() == v1::REASON_APPLIED))
      return BadStepsError("applied against its reason");
    last = outcome.sequence();
    client.outcomes.push_back({.sequence = last,
                               .moments_hash = outcome.moments_hash(),
                               .version = outcome.version(),
                               .applied = outcome.applied(),
                               .reason = static_cast<Reason>(outcome.reason()),
                               .num_batches = outcome.num_batches()});
  }
  if (last != client.last_sequence) return BadStepsError("last_sequence without its outcome");
  return client;
}

bool IsRetired(const store::v1::ClientRecord& message) {
  return message.client_id().empty() && message.client_hash() != 0;
}

absl::StatusOr<RetiredClient> RetiredFromMessage(const store::v1::ClientRecord& message, const RowPlace& place) {
  if (message.last_sequence() == 0 || message.outcomes_size() > 0)
    return BadStepsError("a retired client with outcomes");
  return RetiredClient{.hash = message.client_hash(),
                       .last_sequence = message.last_sequence(),
                       .retired_at = message.retired_at(),
                       .slot = place.slot,
                       .row_checksum = place.checksum};
}

using NamedClient = std::pair<std::string, ClientSteps>;

// Of the outcomes of one version, those that were not applied came after the one that was.
bool SteppedBefore(const NamedClient& a, const NamedClient& b) {
  const StepOutcome& x = a.second.outcomes.back();
  const StepOutcome& y = b.second.outcomes.back();
  return std::tie(x.version, y.applied, a.first) < std::tie(y.version, x.applied, b.first);
}

}  // namespace

absl::Status BadStepsError(std::string_view what) {
  return MakeError(ServerReason("RECORD_STEPS"),
                   {.field = "clients", .value = std::string(what), .limit = "step ids as a server writes them"},
                   Concat("cannot be what a server has written: ", what));
}

void StepsToMessage(const StepLog& steps, Record* record) {
  record->set_floor_sequence(steps.floor());
  for (const auto& [client_id, client] : steps.clients()) {
    store::v1::ClientRecord* message = record->add_clients();
    message->set_client_id(client_id);
    message->set_last_sequence(client.last_sequence);
    for (const StepOutcome& outcome : client.outcomes) {
      store::v1::Outcome* added = message->add_outcomes();
      added->set_sequence(outcome.sequence);
      added->set_moments_hash(outcome.moments_hash);
      added->set_version(outcome.version);
      added->set_applied(outcome.applied);
      added->set_reason(static_cast<v1::Reason>(outcome.reason));
      added->set_num_batches(outcome.num_batches);
    }
  }
  for (const RetiredClient& retired : steps.retired()) {
    store::v1::ClientRecord* message = record->add_clients();
    message->set_client_hash(retired.hash);
    message->set_last_sequence(retired.last_sequence);
  }
}

absl::StatusOr<StepLog> StepsFromMessage(const Record& record, absl::Span<const RowPlace> places) {
  std::vector<NamedClient> clients;
  std::vector<RetiredClient> retired;
  std::set<std::string_view> ids;
  for (int i = 0; i < record.clients_size(); ++i) {
    const store::v1::ClientRecord& message = record.clients(i);
    const RowPlace place = places.empty() ? RowPlace() : places[static_cast<size_t>(i)];
    if (IsRetired(message)) {
      NORMD_ASSIGN_OR_RETURN(retired.emplace_back(), RetiredFromMessage(message, place));
      continue;
    }
    NORMD_ASSIGN_OR_RETURN(ClientSteps client, ClientFromMessage(message));
    if (!ids.insert(message.client_id()).second) return BadStepsError("a client listed twice");
    for (const StepOutcome& outcome : client.outcomes) {
      if (outcome.version > record.version()) return BadStepsError("an outcome newer than the session");
    }
    client.slot = place.slot;
    client.row_checksum = place.checksum;
    clients.emplace_back(message.client_id(), std::move(client));
  }
  std::stable_sort(retired.begin(), retired.end(),
                   [](const RetiredClient& a, const RetiredClient& b) { return a.retired_at < b.retired_at; });
  std::sort(clients.begin(), clients.end(), SteppedBefore);
  StepLog steps;
  for (const RetiredClient& client : retired) steps.RestoreRetired(client);
  for (NamedClient& client : clients) steps.Restore(client.first, std::move(client.second));
  steps.RestoreFloor(record.floor_sequence());
  return steps;
}

}  // namespace normd

#include "server/session/step_log.h"

#include <algorithm>
#include <utility>

#include "server/base/errors.h"

namespace normd {

namespace {

// Estimated bytes of a client's map nodes and its deque of outcomes, which takes one block of 512 bytes at least.
constexpr int64_t kClientBytes = 896;

}  // namespace

// FNV-1a, and a final mix so that all bits depend on all bytes.
uint64_t HashClientId(std::string_view client_id) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : client_id) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93;
  return hash ^ (hash >> 32);
}

absl::StatusOr<const StepOutcome*> StepLog::Find(const StepId& step, uint64_t moments_hash) const {
  const auto client = clients_.find(step.client_id);
  if (client == clients_.end()) {
    const auto retired = FindRetired(step.client_id);
    const uint64_t last = retired == retired_.end() ? floor_ : retired->last_sequence;
    if (step.sequence <= last) return StepTooOldError(step.client_id, step.sequence, last);
    return nullptr;
  }
  const ClientSteps& steps = client->second;
  if (step.sequence > steps.last_sequence) return nullptr;
  const auto outcome = std::find_if(steps.outcomes.begin(), steps.outcomes.end(),
                                    [&step](const StepOutcome& o) { return o.sequence == step.sequence; });
  if (outcome == steps.outcomes.end()) return StepTooOldError(step.client_id, step.sequence, steps.last_sequence);
  if (outcome->moments_hash != moments_hash) return StepReusedError(step.client_id, step.sequence);
  return &*outcome;
}

void StepLog::Add(const StepId& step, const StepOutcome& outcome, const SessionLimits& limits) {
  ClientSteps& steps = Use(step.client_id, limits);
  steps.last_sequence = step.sequence;
  steps.outcomes.push_back(outcome);
  ++outcomes_;
  Cut(limits, &steps);
  Touch(steps.slot, steps.row_checksum, {.client_id = step.client_id});
}

void StepLog::Cut(const SessionLimits& limits, ClientSteps* steps) {
  for (; static_cast<int64_t>(steps->outcomes.size()) > limits.replay_window; --outcomes_) steps->outcomes.pop_front();
}

void StepLog::Touch(int64_t slot, uint32_t row_checksum, SlotChange change) {
  const auto [entry, is_new] = changes_.insert_or_assign(slot, std::move(change));
  if (is_new) rows_digest_ -= row_checksum;
}

void StepLog::Trim(const SessionLimits& limits) {
  while (static_cast<int64_t>(clients_.size()) > limits.max_clients) Retire(clients_.find(by_use_.begin()->second));
  ForgetOverLimit(limits);
  for (auto& [client_id, steps] : clients_) Cut(limits, &steps);
}

void StepLog::Restore(const std::string& client_id, ClientSteps steps) {
  steps.used = ++uses_;
  if (steps.slot == 0) steps.slot = last_slot_ + 1;
  last_slot_ = std::max(last_slot_, steps.slot);
  rows_digest_ += steps.row_checksum;
  outcomes_ += static_cast<int64_t>(steps.outcomes.size());
  by_use_.emplace(steps.used, client_id);
  clients_.emplace(client_id, std::move(steps));
}

void StepLog::RestoreRetired(RetiredClient retired) {
  if (retired.slot == 0) retired.slot = last_slot_ + 1;
  if (retired.retired_at == 0) retired.retired_at = uses_ + 1;
  last_slot_ = std::max(last_slot_, retired.slot);
  uses_ = std::max(uses_, retired.retired_at);
  rows_digest_ += retired.row_checksum;
  retired_.push_back(retired);
}

int64_t StepLog::bytes() const {
  return static_cast<int64_t>(clients_.size()) * kClientBytes + outcomes_ * static_cast<int64_t>(sizeof(StepOutcome)) +
         static_cast<int64_t>(retired_.size() * sizeof(RetiredClient));
}

void StepLog::MoveToRows() {
  in_rows_ = true;
  for (const RetiredClient& retired : retired_) {
    Touch(retired.slot, retired.row_checksum, {.kind = SlotChange::Kind::kRetired, .client_id = {}});
  }
  for (const auto& [client_id, steps] : clients_) Touch(steps.slot, steps.row_checksum, {.client_id = client_id});
}

std::deque<RetiredClient>::const_iterator StepLog::FindRetired(std::string_view client_id) const {
  if (retired_.empty()) return retired_.end();
  const uint64_t hash = HashClientId(client_id);
  return std::find_if(retired_.begin(), retired_.end(), [hash](const RetiredClient& r) { return r.hash == hash; });
}

ClientSteps& StepLog::Use(const std::string& client_id, const SessionLimits& limits) {
  const auto known = clients_.find(client_id);
  if (known != clients_.end()) {
    by_use_.erase(known->second.used);
  } else {
    // The client's own place comes first: it must not be forgotten to make room for itself.
    ClientSteps fresh;
    const auto retired = FindRetired(client_id);
    if (retired == retired_.end()) {
      fresh.slot = ++last_slot_;
    } else {
      fresh.slot = retired->slot;
      fresh.row_checksum = retired->row_checksum;
      retired_.erase(retired);
    }
    while (static_cast<int64_t>(clients_.size()) >= limits.max_clients && !clients_.empty()) {
      Retire(clients_.find(by_use_.begin()->second));
    }
    ForgetOverLimit(limits);
    clients_.emplace(client_id, std::move(fresh));
  }
  ClientSteps& steps = clients_.at(client_id);
  steps.used = ++uses_;
  by_use_.emplace(steps.used, client_id);
  return steps;
}

void StepLog::Retire(Clients::iterator client) {
  const ClientSteps& steps = client->second;
  retired_.push_back({.hash = HashClientId(client->first),
                      .last_sequence = steps.last_sequence,
                      .retired_at = ++uses_,
                      .slot = steps.slot,
                      .row_checksum = steps.row_checksum});
  Touch(steps.slot, steps.row_checksum, {.kind = SlotChange::Kind::kRetired, .client_id = {}});
  outcomes_ -= static_cast<int64_t>(steps.outcomes.size());
  by_use_.erase(steps.used);
  clients_.erase(client);
}

void StepLog::ForgetOverLimit(const SessionLimits& limits) {
  while (static_cast<int64_t>(retired_.size()) > limits.max_retired_clients) {
    const RetiredClient& first = retired_.front();
    floor_ = std::max(floor_, first.last_sequence);
    Touch(first.slot, first.row_checksum, {.kind = SlotChange::Kind::kForgotten, .client_id = {}});
    retired_.pop_front();
  }
}

}  // namespace normd

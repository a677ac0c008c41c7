#include "tests/crash/ledger.h"

#include <algorithm>
#include <utility>

namespace normd::crash {

namespace {

using store::v1::ClientRecord;
using store::v1::Outcome;
using store::v1::SessionRecord;

// A store keeps the outcomes of so many steps of a client (--replay_window's default).
constexpr uint64_t kReplayWindow = 16;
constexpr size_t kMaxEvidence = 20;

std::string Number(uint64_t n) { return std::to_string(n); }

Content ContentOf(const SessionRecord& record) {
  Content content;
  content.mean.assign(record.mean().begin(), record.mean().end());
  content.var.assign(record.var().begin(), record.var().end());
  content.phi.assign(record.phi().begin(), record.phi().end());
  content.phi_before.emplace(record.phi_before().begin(), record.phi_before().end());
  content.num_batches = record.num_batches();
  content.count.assign(record.count().begin(), record.count().end());
  content.min.assign(record.min().begin(), record.min().end());
  content.max.assign(record.max().begin(), record.max().end());
  // A record of samples has no variance: the prior, or what count and m2 say.
  for (int c = 0; c < record.m2_size(); ++c) {
    content.var.push_back(record.count(c) > 0 ? record.m2(c) / record.count(c) : 1.0);
  }
  return content;
}

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  acknowledged += other.acknowledged;
  replays += other.replays;
  sent_again += other.sent_again;
  created += other.created;
  reads += other.reads;
  states += other.states;
  checks += other.checks;
  lost += other.lost;
  doubled += other.doubled;
  mismatches += other.mismatches;
  return *this;
}

Ledger::Ledger() { StartAnew(); }

void Ledger::StartAnew() {
  MutexLock lock(mu_);
  for (const SessionLedger& session : sessions_) {
    if (!session.uid.empty()) old_epochs_.insert(session.uid);
  }
  sessions_.clear();
  for (int i = 0; i < kNumSessions; ++i) {
    SessionLedger& session = sessions_.emplace_back();
    session.clients.resize(static_cast<size_t>(kSessions[i].clients));
    session.content = InitialContent(i);
  }
}

void Ledger::NoteEpoch(int session, const std::string& uid) {
  std::string& known = sessions_[session].uid;
  if (known.empty()) {
    known = uid;
    ++tally_.created;
  }
  if (known != uid || uid.empty()) {
    Mismatch(std::string(kSessions[session].id) + " has uid \"" + uid + "\", not \"" + known + "\"");
  }
  if (old_epochs_.count(uid) > 0) {
    Mismatch(std::string(kSessions[session].id) + " was created anew and has an uid of before, " + uid);
  }
}

void Ledger::Created(int session, const std::string& uid) {
  MutexLock lock(mu_);
  NoteEpoch(session, uid);
}

void Ledger::Attempted(const StepKey& step) {
  MutexLock lock(mu_);
  ClientLedger& client = sessions_[step.session].clients[step.client];
  client.attempted = std::max(client.attempted, step.sequence);
}

void Ledger::Acknowledged(const StepKey& step, const Acknowledgement& ack) {
  MutexLock lock(mu_);
  ClientLedger& client = sessions_[step.session].clients[step.client];
  const std::string what = ToString(step) + ", acknowledged with version " + Number(ack.version);
  NoteEpoch(step.session, ack.uid);
  const bool known = step.sequence <= std::max(client.acknowledged, client.recovered_at_rest);
  if (known && !ack.replayed) Doubled(what + ", was applied before and is not called a replay");
  NoteApplied(step, ack.version);
  if (ack.state.has_value()) NoteStated(step.session, ack);
  if (step.sequence <= client.acknowledged) {
    ++tally_.sent_again;
    return;
  }
  if (ack.replayed) ++tally_.replays;
  ++tally_.acknowledged;
  client.acknowledged = step.sequence;
  SessionLedger& session = sessions_[step.session];
  session.known = std::max(session.known, ack.version);
}

void Ledger::NoteStated(int session, const Acknowledgement& ack) {
  SessionLedger& ledger = sessions_[session];
  const PublishedState& state = *ack.state;
  NoteEpoch(session, state.uid);
  if (state.version < ack.version) {
    Lost(std::string(kSessions[session].id) + " is at version " + Number(state.version) +
         " in the reply to a step that made version " + Number(ack.version));
  }
  ledger.known = std::max(ledger.known, state.version);
  if (state.version > ledger.folded) ledger.stated.emplace(state.version, state.content);
}

void Ledger::Seen(int session, uint64_t version, uint64_t known) {
  MutexLock lock(mu_);
  ++tally_.reads;
  SessionLedger& ledger = sessions_[session];
  ledger.known = std::max(ledger.known, version);
  if (version >= known) return;
  Lost(std::string(kSessions[session].id) + " was read at version " + Number(version) + ", and " + Number(known) +
       " was known");
}

void Ledger::NoteApplied(const StepKey& step, uint64_t version) {
  SessionLedger& session = sessions_[step.session];
  std::map<uint64_t, uint64_t>& versions = session.clients[step.client].versions;
  const auto [known, is_new] = versions.emplace(step.sequence, version);
  if (known->second != version) {
    Doubled(ToString(step) + " has version " + Number(version) + ", and had " + Number(known->second));
    return;
  }
  if (!is_new) return;
  while (versions.size() > 2 * kReplayWindow) versions.erase(versions.begin());
  if (version <= session.folded) {
    Mismatch(ToString(step) + " has version " + Number(version) + ", which was another step's: the session was at " +
             Number(session.folded));
    return;
  }
  const auto [other, is_free] = session.order.emplace(version, step);
  // The same step: a state that was read a moment ago, and its client has gone on by more steps than it remembers.
  if (is_free || other->second == step) return;
  Lost(ToString(step) + " has version " + Number(version) + ", as " + ToString(other->second) + " has");
}

bool Ledger::IsCreated(int session) const {
  MutexLock lock(mu_);
  return !sessions_[session].uid.empty();
}

uint64_t Ledger::LastAttempted(int session, int client) const {
  MutexLock lock(mu_);
  return sessions_[session].clients[client].attempted;
}

uint64_t Ledger::LastAcknowledged(int session, int client) const {
  MutexLock lock(mu_);
  return sessions_[session].clients[client].acknowledged;
}

int64_t Ledger::TotalAcknowledged() const {
  MutexLock lock(mu_);
  return tally_.acknowledged;
}

int64_t Ledger::InFlight() const {
  MutexLock lock(mu_);
  int64_t count = 0;
  for (const SessionLedger& session : sessions_) {
    for (const ClientLedger& client : session.clients) count += client.attempted > client.acknowledged ? 1 : 0;
  }
  return count;
}

Ledger::Known Ledger::KnownOf(int session) const {
  MutexLock lock(mu_);
  Known known;
  for (const ClientLedger& client : sessions_[session].clients) known.acknowledged.push_back(client.acknowledged);
  known.version = sessions_[session].known;
  return known;
}

void Ledger::Check(int session, const Found& found) {
  MutexLock lock(mu_);
  ++tally_.checks;
  const std::string id = kSessions[session].id;
  SessionRecord record;
  if (!record.ParseFromString(found.record) || record.id() != id) {
    return Mismatch(id + ": the exported record cannot be read, or is another session's");
  }
  NoteEpoch(session, record.epoch());
  SessionLedger& ledger = sessions_[session];
  const uint64_t known = std::max(ledger.folded, found.known.version);
  if (record.version() < known) {
    Lost(id + " is at version " + Number(record.version()) + ", and " + Number(known) + " was known");
  }
  CheckClients(session, found.known.acknowledged, record);
  if (found.at_rest) {
    for (ClientLedger& client : ledger.clients) client.recovered_at_rest = client.recovered;
  }
  if (found.state.has_value()) {
    NoteEpoch(session, found.state->uid);
    if (found.state->version < found.known.version) {
      Lost(id + " was read at version " + Number(found.state->version) + ", and " + Number(found.known.version) +
           " was known");
    }
    CheckContent(session, found.state->version, found.state->content, "GetSession");
  }
  CheckContent(session, record.version(), ContentOf(record), "the record");
}

void Ledger::CheckClients(int session, const std::vector<uint64_t>& acknowledged, const SessionRecord& record) {
  std::map<std::string, const ClientRecord*> found;
  for (const ClientRecord& client : record.clients()) found[client.client_id()] = &client;
  uint64_t sum = 0;
  const ClientRecord none;
  for (int client = 0; client < kSessions[session].clients; ++client) {
    const auto it = found.find(ClientName(client));
    const ClientRecord& steps = it == found.end() ? none : *it->second;
    CheckClient({session, client, acknowledged[client]}, steps);
    CheckOutcomes(session, client, steps);
    sum += steps.last_sequence();
    if (it != found.end()) found.erase(it);
  }
  for (const auto& [name, client] : found) {
    Mismatch(std::string(kSessions[session].id) + " has steps of a client that is none: " + name);
  }
  if (sum == record.version()) return;
  const std::string text = std::string(kSessions[session].id) + " is at version " + Number(record.version()) +
                           " and its clients' steps are " + Number(sum);
  record.version() > sum ? Doubled(text) : Lost(text);
}

void Ledger::CheckClient(const StepKey& floor, const ClientRecord& record) {
  ClientLedger& client = sessions_[floor.session].clients[floor.client];
  const uint64_t last = record.last_sequence();
  const StepKey step = {floor.session, floor.client, last};
  if (last < floor.sequence) {
    Lost(ToString(floor) + " was acknowledged and the last step recovered is " + Number(last));
  } else if (last < client.recovered) {
    Lost(ToString(step) + " is the last step recovered, and " + Number(client.recovered) + " was before");
  } else if (last > client.attempted) {
    Doubled(ToString(step) + " was recovered and never attempted: the last one was " + Number(client.attempted));
  }
  client.recovered = std::max(client.recovered, last);
}

void Ledger::CheckOutcomes(int session, int client, const ClientRecord& record) {
  std::vector<uint64_t> sequences;
  for (const Outcome& outcome : record.outcomes()) {
    const StepKey step = {session, client, outcome.sequence()};
    if (!outcome.applied() || outcome.reason() != v1::REASON_APPLIED) {
      Mismatch(ToString(step) + " is recorded as not applied");
    }
    sequences.push_back(outcome.sequence());
    NoteApplied(step, outcome.version());
  }
  const uint64_t last = record.last_sequence();
  std::vector<uint64_t> expected;
  for (uint64_t s = last > kReplayWindow ? last - kReplayWindow + 1 : 1; s <= last; ++s) expected.push_back(s);
  if (sequences == expected) return;
  std::string text = ToString({session, client, last}) + " is the last step and outcomes are kept of";
  for (const uint64_t sequence : sequences) text += " " + Number(sequence);
  Lost(text);
}

bool Ledger::FoldNext(int session) {
  SessionLedger& ledger = sessions_[session];
  const auto next = ledger.order.find(ledger.folded + 1);
  if (next == ledger.order.end()) return false;
  Apply(next->second, &ledger.content);
  ++ledger.folded;
  ledger.order.erase(next);
  const auto stated = ledger.stated.find(ledger.folded);
  if (stated == ledger.stated.end()) return true;
  ++tally_.states;
  const std::string difference = Difference(ledger.content, stated->second);
  ledger.stated.erase(stated);
  if (!difference.empty()) {
    Mismatch(std::string(kSessions[session].id) + " at version " + Number(ledger.folded) +
             ", the reply to a step: " + difference);
  }
  return true;
}

void Ledger::CheckContent(int session, uint64_t version, const Content& actual, const char* source) {
  SessionLedger& ledger = sessions_[session];
  const std::string id = kSessions[session].id;
  if (version < ledger.folded) {
    return Lost(id + " is at version " + Number(version) + " in " + source + " and was at " + Number(ledger.folded));
  }
  while (ledger.folded < version) {
    if (FoldNext(session)) continue;
    return Doubled(id + " is at version " + Number(version) + ", and no step is known to have made version " +
                   Number(ledger.folded + 1));
  }
  const std::string difference = Difference(ledger.content, actual);
  if (!difference.empty()) Mismatch(id + " at version " + Number(version) + ", " + source + ": " + difference);
}

void Ledger::CheckAbsent(int session) {
  MutexLock lock(mu_);
  if (sessions_[session].uid.empty()) return;
  Lost(std::string(kSessions[session].id) + " was created and is gone");
}

void Ledger::CheckSettled() {
  MutexLock lock(mu_);
  for (int session = 0; session < kNumSessions; ++session) {
    for (size_t client = 0; client < sessions_[session].clients.size(); ++client) {
      const ClientLedger& ledger = sessions_[session].clients[client];
      if (ledger.attempted == ledger.acknowledged && ledger.acknowledged == ledger.recovered) continue;
      Lost(ToString({session, static_cast<int>(client), ledger.attempted}) + " was attempted last, " +
           Number(ledger.acknowledged) + " acknowledged, " + Number(ledger.recovered) + " recovered, with all at rest");
    }
  }
}

void Ledger::Lost(const std::string& text) {
  ++tally_.lost;
  if (evidence_.size() < kMaxEvidence) evidence_.push_back("lost: " + text);
}

void Ledger::Doubled(const std::string& text) {
  ++tally_.doubled;
  if (evidence_.size() < kMaxEvidence) evidence_.push_back("doubled: " + text);
}

void Ledger::Mismatch(const std::string& text) {
  ++tally_.mismatches;
  if (evidence_.size() < kMaxEvidence) evidence_.push_back("mismatch: " + text);
}

void Ledger::ReportLost(const std::string& text) {
  MutexLock lock(mu_);
  Lost(text);
}

void Ledger::ReportDoubled(const std::string& text) {
  MutexLock lock(mu_);
  Doubled(text);
}

void Ledger::ReportMismatch(const std::string& text) {
  MutexLock lock(mu_);
  Mismatch(text);
}

Tally Ledger::tally() const {
  MutexLock lock(mu_);
  return tally_;
}

std::vector<std::string> Ledger::evidence() const {
  MutexLock lock(mu_);
  return evidence_;
}

}  // namespace normd::crash

#include "tests/crash/trainers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/tensor.h"

namespace normd::crash {

namespace {

// One flush of samples in so many asks for the state.
constexpr uint64_t kStateOneIn = 3;

std::string NameOf(int session) { return std::string("sessions/") + kSessions[session].id; }

v1::NormSpec SpecOf(Law law) {
  v1::NormSpec spec;
  if (law == Law::kPower) {
    spec.mutable_power_norm()->set_alpha_fwd(kAlpha);
    spec.mutable_power_norm()->set_warmup_iters(kWarmupSteps);
    return spec;
  }
  v1::BatchNorm* const batch_norm = spec.mutable_batch_norm();
  batch_norm->set_layout(v1::LAYOUT_CHANNELS_LAST);
  if (law == Law::kSamples) batch_norm->mutable_running()->set_weighting(v1::WEIGHTING_SAMPLES);
  if (law == Law::kCumulative) batch_norm->mutable_running()->set_cumulative(true);
  if (law == Law::kMomentum) batch_norm->mutable_running()->set_momentum(kMomentumOfNew);
  return spec;
}

v1::NormalizeRequest TensorRequest(const StepKey& step) {
  v1::NormalizeRequest request;
  request.set_session(NameOf(step.session));
  request.set_mode(v1::MODE_TRAINING);
  const std::vector<float> x = StepValues(step);
  *request.mutable_x() = client::Tensor::F32({RowsOf(step), kSessions[step.session].channels}, x).ToProto();
  return request;
}

v1::CommitMomentsRequest MomentsRequest(const StepKey& step) {
  std::vector<double> count;
  std::vector<double> mean;
  std::vector<double> m2;
  for (const Moment& m : StepMoments(step)) {
    count.push_back(m.count);
    mean.push_back(m.mean);
    m2.push_back(m.m2);
  }
  const std::vector<int64_t> shape = {kSessions[step.session].channels};
  v1::CommitMomentsRequest request;
  request.set_session(NameOf(step.session));
  v1::Moments* const moments = request.add_moments();
  *moments->mutable_count() = client::Tensor::F64(shape, count).ToProto();
  *moments->mutable_mean() = client::Tensor::F64(shape, mean).ToProto();
  *moments->mutable_m2() = client::Tensor::F64(shape, m2).ToProto();
  if (kSessions[step.session].law != Law::kSamples) return request;
  const StepExtremes extremes = ExtremesOf(step);
  *moments->mutable_min() = client::Tensor::F64(shape, extremes.min).ToProto();
  *moments->mutable_max() = client::Tensor::F64(shape, extremes.max).ToProto();
  request.set_want_state(step.sequence % kStateOneIn == 0);
  return request;
}

template <typename Request>
void Complete(const StepKey& step, std::optional<uint64_t> expected_version, Request* request) {
  request->mutable_step()->set_client_id(ClientName(step.client));
  request->mutable_step()->set_sequence(step.sequence);
  if (expected_version.has_value()) request->set_expected_version(*expected_version);
}

std::vector<double> DoublesOf(const v1::Tensor& tensor) {
  absl::StatusOr<client::Tensor> values = client::Tensor::FromProto(tensor);
  return values.ok() ? values->ToDoubles() : std::vector<double>();
}

Content ContentOf(const v1::RunningState& state) {
  Content content;
  if (state.has_mean()) content.mean = DoublesOf(state.mean());
  if (state.has_var()) content.var = DoublesOf(state.var());
  if (state.has_phi()) content.phi = DoublesOf(state.phi());
  if (state.has_count()) content.count = DoublesOf(state.count());
  if (state.has_min()) content.min = DoublesOf(state.min());
  if (state.has_max()) content.max = DoublesOf(state.max());
  content.num_batches = state.num_batches();
  return content;
}

PublishedState StateOf(const v1::Session& session) {
  return {.version = session.version(), .uid = session.uid(), .content = ContentOf(session.state())};
}

absl::StatusOr<Acknowledgement> ReadResult(const v1::StateResult& state) {
  if (!state.applied()) return absl::InternalError(absl::StrCat("not applied: ", v1::Reason_Name(state.reason())));
  Acknowledgement ack = {state.version(), state.epoch(), state.replayed(), std::nullopt};
  if (state.has_state()) ack.state = PublishedState{state.state_version(), state.epoch(), ContentOf(state.state())};
  return ack;
}

// What a server that dies or comes up, or a database behind it, makes of a call. Everything else is a violation.
bool MayBeSentAgain(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
}

}  // namespace

absl::Status CreateSessions(Client& client, Ledger* ledger) {
  for (int i = 0; i < kNumSessions; ++i) {
    v1::CreateSessionRequest request;
    request.set_session_id(kSessions[i].id);
    *request.mutable_session()->mutable_spec() = SpecOf(kSessions[i].law);
    request.mutable_session()->set_num_channels(kSessions[i].channels);
    const absl::StatusOr<v1::Session> session = client.CreateSession(request);
    if (!session.ok()) return session.status();
    ledger->Created(i, session->uid());
  }
  return absl::OkStatus();
}

absl::Status CheckSessions(Client& client, Ledger* ledger) {
  for (int i = 0; i < kNumSessions; ++i) {
    Ledger::Found found;
    found.known = ledger->KnownOf(i);
    const absl::StatusOr<v1::Session> session = client.GetSession(NameOf(i), v1::SESSION_VIEW_FULL);
    if (absl::IsNotFound(session.status())) ledger->CheckAbsent(i);
    if (!session.ok()) return session.status();
    found.state = StateOf(*session);
    absl::StatusOr<std::string> record = client.ExportSession(NameOf(i));
    if (!record.ok()) return record.status();
    found.record = *std::move(record);
    ledger->Check(i, found);
  }
  return absl::OkStatus();
}

absl::StatusOr<Acknowledgement> SendStep(Client& client, const StepKey& step,
                                         std::optional<uint64_t> expected_version) {
  // Steps as tensors and as moments are one and the same to the store. (PowerNorm's values would be scaled first, and a
  // tensor's step leaves a session without known extremes.)
  const Law law = kSessions[step.session].law;
  if (step.sequence % 2 == 0 && law != Law::kPower && law != Law::kSamples) {
    v1::NormalizeRequest request = TensorRequest(step);
    Complete(step, expected_version, &request);
    const absl::StatusOr<v1::NormalizeResponse> response = client.Normalize(request);
    if (!response.ok()) return response.status();
    return ReadResult(response->state());
  }
  v1::CommitMomentsRequest request = MomentsRequest(step);
  Complete(step, expected_version, &request);
  const absl::StatusOr<v1::StateResult> state = client.CommitMoments(request);
  if (!state.ok()) return state.status();
  if (state->has_state() != request.want_state())
    return absl::InternalError("the state that was asked for is missing, or one came unasked");
  return ReadResult(*state);
}

Trainers::Trainers(TrainerOptions options, Ledger* ledger) : options_(std::move(options)), ledger_(ledger) {
  for (int session = 0; session < kNumSessions; ++session) {
    for (int client = 0; client < kSessions[session].clients; ++client) {
      members_.push_back({session, client, members_.size()});
    }
  }
  for (const Member& member : members_) threads_.emplace_back([this, &member] { Train(member); });
  for (const std::string& target : options_.targets) threads_.emplace_back([this, &target] { Read(target); });
}

Trainers::~Trainers() {
  abandoning_ = true;
  SetServing(true);
  for (std::thread& thread : threads_) thread.join();
}

void Trainers::SetServing(bool serving) {
  MutexLock lock(mu_);
  serving_ = serving;
  changed_.SignalAll();
}

void Trainers::Finish() {
  finishing_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool Trainers::WaitForSteps(uint64_t steps, bool every_client, absl::Duration patience) const {
  std::vector<uint64_t> enough;
  for (const Member& m : members_) enough.push_back(ledger_->LastAcknowledged(m.session, m.client) + steps);
  const auto is_there = [&](const Member& m) {
    return ledger_->LastAcknowledged(m.session, m.client) >= enough[m.index];
  };
  const absl::Time deadline = absl::Now() + patience;
  while (absl::Now() < deadline && ledger_->ok()) {
    if (every_client && std::all_of(members_.begin(), members_.end(), is_there)) return true;
    if (!every_client && std::any_of(members_.begin(), members_.end(), is_there)) return true;
    absl::SleepFor(absl::Microseconds(300));
  }
  return false;
}

std::unique_ptr<Client> Trainers::Connect(const std::string& target, bool retries) const {
  ClientOptions options;
  options.deadline = options_.deadline;
  options.retry.initial_backoff = absl::Milliseconds(5);
  options.retry.max_backoff = absl::Milliseconds(50);
  options.retry.max_attempts = retries ? 1'000'000 : 1;
  options.retry.budget_tokens = 0;  // it is down most of the time
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(target, options);
  if (!client.ok()) ledger_->ReportMismatch(client.status().ToString());
  return client.ok() ? *std::move(client) : nullptr;
}

void Trainers::WaitUntilServing() {
  MutexLock lock(mu_);
  while (!serving_) changed_.Wait(mu_);
}

void Trainers::Train(const Member& member) {
  std::vector<std::unique_ptr<Client>> clients(options_.targets.size());
  size_t target = member.index % options_.targets.size();
  uint64_t sequence = ledger_->LastAcknowledged(member.session, member.client);
  while (!finishing_ && !abandoning_) {
    const StepKey step = {member.session, member.client, ++sequence};
    ledger_->Attempted(step);
    if (!Take(member, step, &clients, &target)) return;
    const StepKey old = {member.session, member.client, OldStepAfter(sequence)};
    if (old.sequence > 0 && !Take(member, old, &clients, &target)) return;
  }
}

void Trainers::Read(const std::string& target) {
  std::unique_ptr<Client> client;
  for (int i = 0; !finishing_ && !abandoning_; i = (i + 1) % kNumSessions) {
    if (client == nullptr) client = Connect(target, /*retries=*/false);
    if (client == nullptr) return;
    const uint64_t known = ledger_->KnownOf(i).version;
    const absl::StatusOr<v1::Session> session = client->GetSession(NameOf(i));
    if (session.ok()) ledger_->Seen(i, session->version(), known);
    absl::SleepFor(absl::Milliseconds(1));
    if (session.ok() || abandoning_) continue;
    if (!MayBeSentAgain(session.status())) {
      return ledger_->ReportMismatch("reading " + NameOf(i) + ": " + session.status().ToString());
    }
    client = nullptr;
    WaitUntilServing();
  }
}

bool Trainers::Take(const Member& member, const StepKey& step, std::vector<std::unique_ptr<Client>>* clients,
                    size_t* target) {
  const bool several = clients->size() > 1;
  const bool patient = options_.patient_half && !several && member.index % 2 == 1;
  while (!abandoning_) {
    std::unique_ptr<Client>& client = (*clients)[*target];
    if (client == nullptr) client = Connect(options_.targets[*target], patient);
    if (client == nullptr) return false;
    const absl::StatusOr<Acknowledgement> ack = SendStep(*client, step);
    if (ack.ok()) {
      ledger_->Acknowledged(step, *ack);
      return true;
    }
    if (abandoning_) return false;
    if (!MayBeSentAgain(ack.status())) {
      ledger_->ReportMismatch(ToString(step) + " was refused: " + ack.status().ToString());
      return false;
    }
    if (several) {
      *target = (*target + 1) % clients->size();
      absl::SleepFor(absl::Milliseconds(2));  // no spinning while one is down and one is slow
    } else if (!patient) {
      client = nullptr;
      WaitUntilServing();
    }
  }
  return false;
}

}  // namespace normd::crash

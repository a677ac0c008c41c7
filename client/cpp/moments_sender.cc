#include "client/cpp/moments_sender.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cpp/status.h"

namespace normd::client {
namespace {

// Between tries while no server answers; doubled from the first to the last.
constexpr absl::Duration kFirstPause = absl::Milliseconds(100), kLastPause = absl::Seconds(5);

constexpr size_t kBytesPerChannel = 5 * sizeof(double);  // of a contribution

std::string RandomClientId() {
  std::random_device device;
  const uint64_t number = uint64_t{device()} << 32 | device();
  return absl::StrFormat("moments-%d-%016x", getpid(), number);
}

// Once a session has forgotten contributors, which it does after some 66,000, it takes from one that it does not know
// only steps above all of theirs. Milliseconds since 1970 are above those of all who sent earlier, because nobody sends
// a thousand contributions a second. The clocks of contributors to such a session must agree.
uint64_t LeastSequence() { return static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixMillis(absl::Now()), 0)); }

// True if the same contribution may be taken later.
bool IsTemporary(const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return true;
  // RESOURCE_EXHAUSTED without a delay is a limit, and waiting does not move a limit.
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  return absl::IsResourceExhausted(status) && info.has_value() && info->retry_delay.has_value();
}

// wait_for of a duration that may be infinite.
template <typename Condition>
void WaitFor(absl::Duration duration, std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
             Condition condition) {
  constexpr absl::Duration kLongest = absl::Hours(24 * 365);  // the clock overflows beyond
  changed.wait_for(lock, absl::ToChronoNanoseconds(std::min(duration, kLongest)), condition);
}

}  // namespace

MomentsSender::MomentsSender(std::unique_ptr<Client> client, SenderOptions options, KnownState known)
    : client_(std::move(client)),
      options_(std::move(options)),
      client_id_(RandomClientId()),
      request_bytes_(known.samples.channels() * kBytesPerChannel),
      ledger_(std::move(known), options_.rule),
      thread_([this] { Run(); }) {}

MomentsSender::~MomentsSender() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

absl::Status MomentsSender::Add(const SampleMoments& samples) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (!failure_.ok()) return failure_;
  ledger_.Add(samples);
  ++added_;
  if (IsDue()) changed_.notify_all();
  return absl::OkStatus();
}

KnownState MomentsSender::Seen() {
  const std::lock_guard<std::mutex> lock(mu_);
  if (ledger_.settled()) return ledger_.known();
  return {.samples = ledger_.View(), .version = ledger_.known().version, .digest = ""};
}

absl::Status MomentsSender::Flush(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  std::unique_lock<std::mutex> lock(mu_);
  const uint64_t wanted = added_;
  const auto is_over = [&] { return acknowledged_ >= wanted || ledger_.settled() || !failure_.ok(); };
  while (!is_over()) {
    asked_ = true;
    changed_.notify_all();
    if (absl::Now() >= end) {
      return trouble_.ok() ? absl::DeadlineExceededError(absl::StrCat("the samples were not acknowledged within ",
                                                                      absl::FormatDuration(timeout),
                                                                      "; they are kept and sent again"))
                           : trouble_;
    }
    WaitFor(end - absl::Now(), lock, changed_, is_over);
  }
  return failure_;
}

absl::Status MomentsSender::Refresh() { return Learn(/*needs_digest=*/true); }

void MomentsSender::Run() {
  absl::Duration pause = kFirstPause;
  while (WaitForWork()) {
    const absl::Status status = SendOrLearn();
    if (!GoesOnAfter(status)) return;
    if (status.ok()) {
      pause = kFirstPause;
      continue;
    }
    client_->WaitForConnection(request_bytes_, pause, [this] { return IsClosing(); });
    pause = std::min(2 * pause, kLastPause);
  }
}

bool MomentsSender::GoesOnAfter(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mu_);
  trouble_ = status;
  if (status.ok() || IsTemporary(status)) return true;
  failure_ = status;
  changed_.notify_all();
  return false;
}

bool MomentsSender::IsClosing() {
  const std::lock_guard<std::mutex> lock(mu_);
  return closing_;
}

bool MomentsSender::WaitForWork() {
  std::unique_lock<std::mutex> lock(mu_);
  WaitFor(options_.flush_interval, lock, changed_, [this] { return closing_ || IsDue(); });
  asked_ = asked_ && !ledger_.settled();
  return !closing_;
}

absl::Status MomentsSender::SendOrLearn() {
  const MomentsLedger::Contribution* contribution;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    const bool is_new = sent_ == acknowledged_;
    contribution = ledger_.Take(LeastSequence());
    if (contribution != nullptr && is_new) sent_ = added_;
  }
  // Only this thread acknowledges, so the contribution stays where it is.
  return contribution == nullptr ? Learn(/*needs_digest=*/false) : Send(*contribution);
}

absl::Status MomentsSender::Send(const MomentsLedger::Contribution& contribution) {
  v1::CommitMomentsRequest request;
  request.set_session(options_.session);
  request.mutable_step()->set_client_id(client_id_);
  request.mutable_step()->set_sequence(contribution.sequence);
  request.set_want_state(true);
  *request.add_moments() = contribution.samples.ToProto();
  const absl::StatusOr<v1::StateResult> reply = client_->CommitMoments(request);
  if (!reply.ok()) return reply.status();
  std::optional<KnownState> state;
  if (reply->has_state()) {
    absl::StatusOr<SampleMoments> samples = SampleMoments::FromState(reply->state());
    if (!samples.ok()) return samples.status();
    state = {.samples = *std::move(samples), .version = reply->state_version(), .digest = ""};
  }
  const std::lock_guard<std::mutex> lock(mu_);
  ledger_.Acknowledge(std::move(state));
  acknowledged_ = sent_;
  asked_ = asked_ && !ledger_.settled();
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status MomentsSender::Learn(bool needs_digest) {
  std::optional<uint64_t> version;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (!needs_digest || !ledger_.known().digest.empty()) version = ledger_.known().version;
  }
  const absl::StatusOr<v1::Session> session = client_->GetSession(options_.session, v1::SESSION_VIEW_FULL, version);
  if (!session.ok()) return session.status();
  if (!session->has_state()) return absl::OkStatus();  // there is nothing newer
  absl::StatusOr<SampleMoments> samples = SampleMoments::FromState(session->state());
  if (!samples.ok()) return samples.status();
  const std::lock_guard<std::mutex> lock(mu_);
  ledger_.See({.samples = *std::move(samples), .version = session->version(), .digest = session->digest()});
  return absl::OkStatus();
}

}  // namespace normd::client

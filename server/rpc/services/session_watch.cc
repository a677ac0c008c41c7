#include "server/rpc/services/session_watch.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/rpc/codec/message.h"
#include "server/rpc/codec/session_messages.h"
#include "server/rpc/codec/session_name.h"
#include "server/rpc/edge/status.h"
#include "server/rpc/services/handlers.h"
#include "server/rpc/services/method_names.h"
#include "server/session/session_changes.h"
#include "server/session/session_key.h"

namespace normd::rpc {
namespace {

// Half of the second within which another server's change is seen.
constexpr absl::Duration kInterval = absl::Milliseconds(500);
// What a stream that only waits takes, with its call and its part of the connection.
constexpr int64_t kWatcherBytes = int64_t{16} << 10;
// A version is in memory as a message while it is encoded, and then as bytes.
constexpr int64_t kBytesHeldPerByte = 2;

// Bytes of one version, with the memory that is reserved for them as long as anybody sends them.
struct Encoded {
  MessageBytes bytes;
  Reservation held;
};

MessageBytes Shared(const std::shared_ptr<const Encoded>& encoded) {
  MessageBytes shared;
  for (const Slice& slice : encoded->bytes.slices()) shared.Append(Slice(slice.text(), encoded));
  return shared;
}

absl::Status ReplacedError(std::string_view key) {
  const std::string id(IdOf(key));
  return MakeError(ServerReason("SESSION_REPLACED"),
                   {.field = "session", .value = id, .limit = "the session that was watched"},
                   id + " is not the one that was watched: it was deleted and created again");
}

}  // namespace

SessionWatch::SessionWatch(const RouteContext* context, Engine* engine)
    : context_(context), engine_(engine), on_change_([this](std::string_view key) {
        {
          MutexLock lock(mu_);
          if (watched_.find(key) == watched_.end()) return;
        }
        Read(std::string(key), /*known=*/true);
      }) {
  engine_->ReportChanges(&on_change_);
  thread_.emplace(kInterval, [this] { Look(); });
}

SessionWatch::~SessionWatch() {
  thread_.reset();
  engine_->ReportChanges(nullptr);
  MutexLock lock(mu_);
  while (!watched_.empty()) unused_.Wait(mu_);
}

Route SessionWatch::MakeRoute() {
  return ServerStreaming<v1::WatchSessionRequest>(
      context_, MethodPath("normd.v1.Sessions", "WatchSession"),
      [this](Parsed<v1::WatchSessionRequest> request, std::shared_ptr<RpcCall> stream, Observation observation) {
        Watch(*request, std::move(stream), std::move(observation));
      });
}

void SessionWatch::Watch(const v1::WatchSessionRequest& request, std::shared_ptr<RpcCall> stream,
                         Observation observation) {
  absl::StatusOr<std::string> key = DecodeSessionName(request.name(), "name", stream->identity()->tenant);
  if (!key.ok()) return Reply(std::move(stream), std::move(observation))(key.status());
  absl::StatusOr<Reservation> held = context_->admission->Reserve(kWatcherBytes, [&stream] { return NameOf(*stream); });
  if (!held.ok()) return Reply(std::move(stream), std::move(observation))(held.status());
  auto watcher = std::make_shared<Watcher>();
  watcher->stream = std::move(stream);
  watcher->held = *std::move(held);
  if (request.has_after_version()) watcher->sent = request.after_version();
  bool ended = false;
  bool known = false;
  {
    MutexLock lock(mu_);
    ended = ended_;
    if (!ended) {
      Watched& watched = watched_[*key];
      watched.watchers.insert(watcher);
      known = watched.newest != nullptr;
    }
  }
  if (ended) return Reply(watcher->stream, std::move(observation))(DrainingError());
  // The time of the request is the time until the server watches, and not how long.
  observation.Finish(absl::OkStatus(), 0);
  watcher->stream->WhenOver([this, key = *key, watcher](const absl::Status& end) {
    Forget(key, watcher);
    if (!end.ok()) watcher->stream->Finish(CallerGoneError());
  });
  if (known) return Update(*key, watcher);
  Read(*key, /*known=*/false);
}

void SessionWatch::Forget(const std::string& key, const WatcherPtr& watcher) {
  MutexLock lock(mu_);
  const auto found = watched_.find(key);
  if (found == watched_.end()) return;
  found->second.watchers.erase(watcher);
  EraseIfUnused(found);
}

void SessionWatch::EraseIfUnused(WatchedSessions::iterator watched) {
  if (!watched->second.watchers.empty() || watched->second.reading) return;
  watched_.erase(watched);
  if (watched_.empty()) unused_.SignalAll();
}

void SessionWatch::Read(const std::string& key, bool known) {
  {
    MutexLock lock(mu_);
    const auto found = watched_.find(key);
    if (found == watched_.end()) return;
    found->second.changed = true;
    if (std::exchange(found->second.reading, true)) return;
    found->second.changed = false;
  }
  auto done = [this, key](absl::StatusOr<SessionPtr> session) { HandleRead(key, std::move(session)); };
  if (known) return engine_->GetKnownSession(key, std::move(done));
  engine_->GetSession(key, /*cancelled=*/nullptr, std::move(done));
}

void SessionWatch::HandleRead(const std::string& key, absl::StatusOr<SessionPtr> session) {
  if (!session.ok()) {
    const bool is_gone = absl::IsNotFound(session.status()) || absl::IsDataLoss(session.status());
    // Any other error passes; the streams wait for the next look.
    return is_gone ? EndSession(key, session.status()) : EndRead(key);
  }
  SessionPtr before;
  {
    MutexLock lock(mu_);
    before = watched_.at(key).newest;
  }
  if (before != nullptr && before->uid != (*session)->uid) return EndSession(key, ReplacedError(key));
  if (before != nullptr && before->version >= (*session)->version) return EndRead(key);
  const int64_t bytes = QuotaBytes(**session);
  RunIfLarge(*context_, bytes, [this, key, session = *std::move(session)]() mutable {
    absl::StatusOr<MessageBytes> encoded = Encode(key, *session);
    HandleEncoded(key, std::move(session), std::move(encoded));
  });
}

absl::StatusOr<MessageBytes> SessionWatch::Encode(const std::string& key, const Session& session) const {
  CallerName name = {.connection = "watchers", .tenant = std::string(TenantOf(key))};
  auto encoded = std::make_shared<Encoded>();
  const int64_t bytes = kBytesHeldPerByte * QuotaBytes(session);
  NORMD_ASSIGN_OR_RETURN(encoded->held, context_->admission->Reserve(bytes, [&name] { return name; }));
  v1::Session message;
  SessionToMessage(session, engine_->durability(), v1::SESSION_VIEW_FULL, &message);
  encoded->bytes = Serialize(message);
  return Shared(encoded);
}

void SessionWatch::HandleEncoded(const std::string& key, SessionPtr session, absl::StatusOr<MessageBytes> encoded) {
  std::vector<WatcherPtr> waiting;
  // Without memory for this version, the streams wait for the next look.
  if (encoded.ok()) {
    MutexLock lock(mu_);
    Watched& watched = watched_.at(key);
    watched.newest = std::move(session);
    watched.encoded = *std::move(encoded);
    waiting.reserve(watched.watchers.size());
    // A stream that is being sent an older version gets this one afterwards.
    for (const WatcherPtr& watcher : watched.watchers) {
      if (!watcher->writing) waiting.push_back(watcher);
    }
  }
  for (const WatcherPtr& watcher : waiting) Update(key, watcher);
  EndRead(key);
}

void SessionWatch::EndRead(const std::string& key) {
  {
    MutexLock lock(mu_);
    const auto found = watched_.find(key);
    found->second.reading = false;
    const bool again = found->second.changed && !found->second.watchers.empty();
    EraseIfUnused(found);
    if (!again) return;
  }
  Read(key, /*known=*/true);
}

void SessionWatch::ReportSent(absl::Time changed) const {
  const RpcObserver* const observer = context_->observer;
  if (changed == absl::InfiniteFuture() || observer == nullptr || observer->on_version_sent == nullptr) return;
  observer->on_version_sent(std::max(absl::ZeroDuration(), absl::Now() - changed));
}

void SessionWatch::Update(const std::string& key, const WatcherPtr& watcher) {
  MessageBytes bytes;
  absl::Time changed = absl::InfiniteFuture();
  {
    MutexLock lock(mu_);
    const auto found = watched_.find(key);
    if (found == watched_.end() || found->second.newest == nullptr || watcher->writing) return;
    const uint64_t version = found->second.newest->version;
    if (watcher->sent.has_value() && *watcher->sent >= version) return;
    // The first version of a stream may be of any age.
    if (watcher->follows) changed = found->second.newest->update_time;
    watcher->follows = true;
    watcher->writing = true;
    watcher->sent = version;
    bytes = found->second.encoded;
  }
  watcher->stream->Write(std::move(bytes), [this, key, watcher, changed] {
    ReportSent(changed);
    {
      MutexLock lock(mu_);
      watcher->writing = false;
    }
    Update(key, watcher);
  });
}

void SessionWatch::EndSession(const std::string& key, const absl::Status& why) {
  Watchers watchers;
  {
    MutexLock lock(mu_);
    const auto found = watched_.find(key);
    watchers.swap(found->second.watchers);
    found->second.reading = false;
    EraseIfUnused(found);
  }
  for (const WatcherPtr& watcher : watchers) watcher->stream->Finish(why);
}

void SessionWatch::Look() {
  std::vector<std::string> keys;
  {
    MutexLock lock(mu_);
    for (const auto& [key, watched] : watched_) keys.push_back(key);
  }
  for (const std::string& key : keys) Read(key, /*known=*/false);
}

int64_t SessionWatch::watchers() const {
  MutexLock lock(mu_);
  int64_t watchers = 0;
  for (const auto& [key, watched] : watched_) watchers += static_cast<int64_t>(watched.watchers.size());
  return watchers;
}

void SessionWatch::End() {
  std::vector<WatcherPtr> watchers;
  {
    MutexLock lock(mu_);
    ended_ = true;
    for (const auto& [key, watched] : watched_) {
      watchers.insert(watchers.end(), watched.watchers.begin(), watched.watchers.end());
    }
  }
  for (const WatcherPtr& watcher : watchers) watcher->stream->Finish(DrainingError());
}

}  // namespace normd::rpc

// Sessions.WatchSession: streams that get the newest version of a session, and then each later one.
// Of each watched session the newest version is read once, encoded once, and its bytes are shared by all of its
// streams. A stream that is still sending an older version gets the newest when it has sent it, so that nothing queues
// for slow readers. A change that this server makes is seen at once; changes of other servers of a shared store, and
// expiry, by asking the store at intervals. In the path: beside the calls. Threads: safe from any thread; no lock is
// held while a stream is written to, or a session read or encoded.
#ifndef NORMD_SERVER_RPC_SERVICES_SESSION_WATCH_H_
#define NORMD_SERVER_RPC_SERVICES_SESSION_WATCH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "normd/v1/sessions.pb.h"
#include "server/base/mutex.h"
#include "server/base/periodic_thread.h"
#include "server/base/slice.h"
#include "server/engine/engine.h"
#include "server/rpc/edge/route.h"
#include "server/rpc/edge/rpc_call.h"

namespace normd::rpc {

class SessionWatch {
 public:
  // Both pointers must outlive the object.
  SessionWatch(const RouteContext* context, Engine* engine);
  // Waits for readings that are in progress. REQUIRES: no stream is left.
  ~SessionWatch();

  // The route of WatchSession. The object must outlive its streams.
  Route MakeRoute();

  // Ends every current and future watch with UNAVAILABLE.
  void End();

  // The streams that watch now.
  int64_t watchers() const;

 private:
  struct Watcher {
    std::shared_ptr<RpcCall> stream;
    Reservation held;
    bool writing = false;          // guarded by mu_
    std::optional<uint64_t> sent;  // guarded by mu_; the version that the caller has
    bool follows = false;          // guarded by mu_; the stream has brought a version, and waits for later ones
  };
  using WatcherPtr = std::shared_ptr<Watcher>;
  using Watchers = std::unordered_set<WatcherPtr>;
  // A session with at least one watcher.
  struct Watched {
    Watchers watchers;
    SessionPtr newest;  // null: not read yet
    MessageBytes encoded;
    bool reading = false;
    bool changed = false;  // since the reading began
  };
  using WatchedSessions = std::map<std::string, Watched, std::less<>>;

  void Watch(const v1::WatchSessionRequest& request, std::shared_ptr<RpcCall> stream, Observation observation);
  void Forget(const std::string& key, const WatcherPtr& watcher);
  // Forgets a session that nobody watches and that is not being read.
  void EraseIfUnused(WatchedSessions::iterator watched) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reads the session, unless it is being read; then, it is read once more. `known`: the version of this server will
  // do.
  void Read(const std::string& key, bool known);
  void HandleRead(const std::string& key, absl::StatusOr<SessionPtr> session);
  void HandleEncoded(const std::string& key, SessionPtr session, absl::StatusOr<MessageBytes> encoded);
  absl::StatusOr<MessageBytes> Encode(const std::string& key, const Session& session) const;
  // Ends the reading that is in progress, and begins another if the session has changed since.
  void EndRead(const std::string& key);
  // Sends the newest version to the watcher unless it has it, or is being sent one, after which Update is called again.
  void Update(const std::string& key, const WatcherPtr& watcher);
  // Tells the observer of a version that was written; InfiniteFuture: of one that the stream did not wait for.
  void ReportSent(absl::Time changed) const;
  // Ends the streams of a session that is there no more.
  void EndSession(const std::string& key, const absl::Status& why);
  // Asks the store for every watched session.
  void Look();

  const RouteContext* const context_;
  Engine* const engine_;
  const ChangeListener on_change_;

  mutable Mutex mu_;
  CondVar unused_;  // watched_ has become empty
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  WatchedSessions watched_ ABSL_GUARDED_BY(mu_);
  std::optional<PeriodicThread> thread_;  // last: destroyed first
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_SESSION_WATCH_H_

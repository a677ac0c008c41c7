// A session's versions as they come: one long call of the server (WatchSession), which a watch opens again when a
// server is lost.
//
//   std::unique_ptr<normd::SessionWatch> watch = client->WatchSession("sessions/observations");
//   absl::StatusOr<normd::v1::Session> session;
//   while ((session = watch->Next()).ok()) {
//     const absl::StatusOr<normd::client::Tensor> mean = normd::client::Tensor::FromProto(session->state().mean());
//     ...
//   }
//   std::cerr << normd::client::ToText(session.status()) << "\n";  // NOT_FOUND: the session was deleted
//
// In the path: Client::WatchSession makes one. Threads: one thread calls Next; Cancel is safe from any thread.
// Ownership: a watch keeps the connections of its Client, and may outlive it.
#ifndef NORMD_CLIENT_CPP_SESSION_WATCH_H_
#define NORMD_CLIENT_CPP_SESSION_WATCH_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "normd/v1/sessions.pb.h"

namespace normd {

// Options of a SessionWatch. `after_version`: the version that the caller has, as GetSession returned it; absent: none.
// `patience`: how long Next goes on without a server before it returns the reason.
struct WatchOptions {
  std::optional<uint64_t> after_version = std::nullopt;
  absl::Duration patience = absl::InfiniteDuration();
};

class SessionWatch {
 public:
  SessionWatch(const SessionWatch&) = delete;
  SessionWatch& operator=(const SessionWatch&) = delete;
  // Ends the call. REQUIRES: no Next is running; Cancel ends one.
  ~SessionWatch();

  // Blocks for the next version, which is returned in SESSION_VIEW_FULL: at first the newest, if it is newer than
  // after_version, then each later one. A caller that is slow misses versions in between, never the newest. A server
  // that is lost, or that drains, is called again as ClientOptions::retry says, but without an end before `patience`,
  // and without the retry budget; with RetryOptions::max_attempts of 1 the first error is returned.
  // Errors end the watch, and each later call returns the same: NOT_FOUND when the session is deleted, ABORTED when
  // another session has taken its name, CANCELLED after Cancel, UNAVAILABLE after `patience`.
  absl::StatusOr<v1::Session> Next();

  // Ends the watch: a Next that is running returns CANCELLED, and so does each later one.
  void Cancel();

 private:
  friend class Client;
  struct Stream;
  explicit SessionWatch(std::unique_ptr<Stream> stream);
  const std::unique_ptr<Stream> stream_;
};

}  // namespace normd

#endif  // NORMD_CLIENT_CPP_SESSION_WATCH_H_

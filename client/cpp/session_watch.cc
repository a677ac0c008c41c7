#include "client/cpp/session_watch.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "client/cpp/channels.h"
#include "client/cpp/client.h"

namespace normd {
namespace {

// A watch has no end of its own, so its tries are not counted; one try at most stays one try.
client::RetryOptions WithoutLastAttempt(client::RetryOptions retry) {
  if (retry.max_attempts > 1) retry.max_attempts = std::numeric_limits<int>::max();
  return retry;
}

}  // namespace

// The calls of a watch, one after the other.
struct SessionWatch::Stream {
  using Reader = grpc::ClientReader<v1::Session>;

  const std::shared_ptr<const void> channels;  // of the Client; own the next four
  grpc::Channel& channel;
  v1::Sessions::Stub& stub;
  const client::Credentials& credentials;
  const client::Callee& callee;
  const client::RetryOptions retry;
  const absl::Duration patience;

  // ---- of the thread that calls Next
  v1::WatchSessionRequest request;
  std::unique_ptr<Reader> reader;       // null between two calls
  std::optional<v1::Session> newest;    // of those returned; only uid and version
  absl::Status end = absl::OkStatus();  // the error that ended the watch
  int failures = 0;                     // since the last message
  absl::Time give_up = absl::InfiniteFuture();

  std::mutex mu;
  bool cancelled = false;                        // guarded by mu
  std::shared_ptr<grpc::ClientContext> context;  // guarded by mu; of `reader`

  // Opens the call anew. False if the watch is cancelled.
  bool Open() {
    auto fresh = std::make_shared<grpc::ClientContext>();
    client::PrepareContext(absl::InfiniteFuture(), credentials, fresh.get());
    client::NameSession(request.name(), fresh.get());
    {
      const std::lock_guard<std::mutex> lock(mu);
      if (cancelled) return false;
      context = fresh;
    }
    // The call may be cancelled already: it then ends at once.
    reader = stub.WatchSession(fresh.get(), request);
    return true;
  }

  // Ends the call and returns its status. REQUIRES: there is a call, and Read returned false or the watch is cancelled.
  absl::Status Close() {
    std::shared_ptr<grpc::ClientContext> closing;
    {
      const std::lock_guard<std::mutex> lock(mu);
      closing = context;
    }
    absl::Status status = client::ExplainConnection(client::FromGrpc(reader->Finish(), *closing), callee);
    reader.reset();
    return status;
  }

  bool IsCancelled() {
    const std::lock_guard<std::mutex> lock(mu);
    return cancelled;
  }

  // Waits before the next call. Returns `status` where there is to be none.
  absl::Status WaitAfter(const absl::Status& status) {
    if (failures++ == 0) give_up = absl::Now() + patience;
    const std::optional<absl::Duration> wait =
        client::NextWait(retry, status, failures, give_up - absl::Now(), client::DrawUniform());
    if (!wait.has_value()) return status;
    client::WaitForConnection(channel, *wait, [this] { return IsCancelled(); });
    return absl::OkStatus();
  }

  // Whether `session` is one that the caller has not seen; an error if it is not the same session.
  absl::StatusOr<bool> IsNews(const v1::Session& session) {
    failures = 0;
    if (newest.has_value() && session.uid() != newest->uid()) {
      return absl::AbortedError(
          absl::StrCat(request.name(), " is another session now: uid ", session.uid(), ", not ", newest->uid()));
    }
    if (newest.has_value() && session.version() <= newest->version()) return false;
    newest.emplace();
    newest->set_uid(session.uid());
    newest->set_version(session.version());
    // The server shows the newest version to a caller that names none. By its uid, a session that was deleted and
    // created again while there was no call is noticed, however low its version is.
    request.clear_after_version();
    return true;
  }
};

SessionWatch::SessionWatch(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}

SessionWatch::~SessionWatch() {
  Cancel();
  if (stream_->reader == nullptr) return;
  for (v1::Session unread; stream_->reader->Read(&unread);) {
  }
  stream_->Close().IgnoreError();
}

absl::StatusOr<v1::Session> SessionWatch::Next() {
  Stream& stream = *stream_;
  while (stream.end.ok()) {
    if (stream.IsCancelled() || (stream.reader == nullptr && !stream.Open())) {
      stream.end = absl::CancelledError("the watch was cancelled");
      break;
    }
    v1::Session session;
    if (stream.reader->Read(&session)) {
      const absl::StatusOr<bool> is_news = stream.IsNews(session);
      stream.end = is_news.status();
      if (is_news.ok() && *is_news) return session;
      continue;
    }
    const absl::Status status = stream.Close();
    if (!stream.IsCancelled()) stream.end = stream.WaitAfter(status);
  }
  return stream.end;
}

void SessionWatch::Cancel() {
  const std::lock_guard<std::mutex> lock(stream_->mu);
  stream_->cancelled = true;
  if (stream_->context != nullptr) stream_->context->TryCancel();
}

std::unique_ptr<SessionWatch> Client::WatchSession(const std::string& name, WatchOptions options) {
  std::unique_ptr<SessionWatch::Stream> stream(new SessionWatch::Stream{.channels = channels_,
                                                                        .channel = *channels_->large.channel,
                                                                        .stub = *channels_->large.sessions,
                                                                        .credentials = *channels_->credentials,
                                                                        .callee = channels_->callee,
                                                                        .retry = WithoutLastAttempt(options_.retry),
                                                                        .patience = options.patience});
  stream->request.set_name(name);
  if (options.after_version.has_value()) stream->request.set_after_version(*options.after_version);
  return std::unique_ptr<SessionWatch>(new SessionWatch(std::move(stream)));
}

}  // namespace normd

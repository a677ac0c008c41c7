// One RPC as a transport presents it: headers, messages in, messages out, a status with trailers, cancellation, the
// peer. Two transports implement it: grpc/ (gRPC's completion queues) and native/ (nghttp2).
// In the path: between a transport and Stream, which is all that the rest of the server knows of a call.
// Ownership: Stream owns the call. The callback of an operation keeps the Stream, and so the call, alive until it ran
// or was destroyed.
// Threads: Read and ReadSize are called from one thread at a time, and so are Write, WriteAndFinish and Finish; Cancel
// is safe from any thread. Callbacks run on the transport's thread, with no lock held, and must not block. An operation
// may run its callback before it returns.
#ifndef NORMD_SERVER_RPC_TRANSPORT_TRANSPORT_CALL_H_
#define NORMD_SERVER_RPC_TRANSPORT_TRANSPORT_CALL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/slice.h"
#include "server/net/tls_peer.h"
#include "server/rpc/transport/connection.h"
#include "server/rpc/transport/status.h"

namespace normd::rpc {

// Keys are in lower case and values are visible ASCII. The transport adds the status itself.
using Trailers = std::vector<std::pair<std::string, std::string>>;

class TransportCall {
 public:
  using OnRead = absl::AnyInvocable<void(std::optional<MessageBytes>)>;
  using OnSize = absl::AnyInvocable<void(std::optional<int64_t> bytes)>;
  using OnDone = absl::AnyInvocable<void(const absl::Status& end)>;
  using Callback = absl::AnyInvocable<void()>;

  virtual ~TransportCall() = default;

  // "/normd.v1.Normalizer/Normalize"
  virtual const std::string& method() const = 0;
  // Visits the caller's metadata; values of one key come in the order of arrival. Keys are in lower case; values of
  // keys that end in "-bin" are decoded. The texts live as long as the call.
  virtual void VisitMetadata(absl::FunctionRef<void(std::string_view key, std::string_view value)> visit) const = 0;
  // The caller's deadline by SteadyNow; InfiniteFuture if the caller set none.
  virtual absl::Time deadline() const = 0;
  // The connection of the call; never null.
  virtual const ConnectionPtr& connection() const = 0;
  // What TLS says of the peer; never null.
  virtual const net::TlsPeerPtr& tls_peer() const = 0;

  // Sets what runs once, when the call is over. `end` is OK where its status was sent; else CANCELLED where the caller
  // or its connection is gone, or the deadline passed, or the error with which the transport itself ended the call, as
  // far as it knows that. Called once, before any other operation.
  virtual void OnOver(OnDone on_done) = 0;

  // Finds the size of the coming message before the transport holds more of it than flow control lets in anyway.
  // `on_size` gets nullopt if the size is not known: the transport cannot tell, or no message comes. REQUIRES: no Read
  // or ReadSize is in progress.
  virtual void ReadSize(OnSize on_size) = 0;
  // Reads one message. `on_read` gets nullopt when the caller has half-closed, the call is over, or the message is over
  // the size limit, for which the transport ends the call itself. REQUIRES: no Read or ReadSize is in progress.
  virtual void Read(OnRead on_read) = 0;

  // Reads one message as Read does, of which only the beginning is kept: at least kHeadBytes, or all of a shorter
  // message. The rest is dropped as it comes. REQUIRES: as for Read, and ReadSize has told the message's size.
  virtual void ReadHead(OnRead on_read) = 0;
  static constexpr int64_t kHeadBytes = 64;

  // Sends a message. `written` runs when the transport has taken the message or never will. REQUIRES: no Write is in
  // progress, and the call was not finished.
  virtual void Write(MessageBytes message, Callback written) = 0;
  // Ends the call. `written` runs when the transport has taken the status or never will. REQUIRES: as for Write.
  virtual void Finish(RpcStatus status, Trailers trailers, Callback written) = 0;
  // Does Write and Finish at once, so that message and status leave together.
  virtual void WriteAndFinish(MessageBytes message, RpcStatus status, Trailers trailers, Callback written) = 0;

  // Ends the call as if the caller had gone. No effect on a call that is over.
  virtual void Cancel() = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_TRANSPORT_CALL_H_

// How a method is found and answered: a Route for the dispatcher, the one message of a unary call, read when there is
// room for it, and the Reply. What the bytes mean is the codec's; services/handlers.h makes Routes of parsed requests.
// In the path: between Stream and the services. Handlers run on a queue's thread, or for large messages on one of the
// pool's; a Reply may be used from any thread.
#ifndef NORMD_SERVER_RPC_TRANSPORT_ROUTE_H_
#define NORMD_SERVER_RPC_TRANSPORT_ROUTE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "server/base/work_pool.h"
#include "server/rpc/transport/admission.h"
#include "server/rpc/transport/observation.h"
#include "server/rpc/transport/read_limiter.h"
#include "server/rpc/transport/stream.h"

namespace normd {
class BufferPool;
class RegionTable;
}  // namespace normd

namespace normd::rpc {

// One RPC method of a service and the code that answers it. (`Method` is a normalisation here.)
struct Route {
  std::string path;  // "/normd.v1.Normalizer/Normalize"
  // Called at headers, on a queue's thread: nothing of the request has been read yet.
  std::function<void(std::shared_ptr<Stream>)> start;
  bool while_draining = false;  // answered also by a server that takes no new work: health
};

// What every method needs. Outlives all streams.
struct RouteContext {
  Admission* admission = nullptr;
  ReadLimiter* read_limiter = nullptr;    // null: every message is read at once
  const RpcObserver* observer = nullptr;  // null: not observed
  int64_t max_message_bytes = int64_t{1} << 31;
  BufferPool* buffers = nullptr;         // null: malloc
  const RegionTable* regions = nullptr;  // null: no shared memory
  bool shared_memory_anywhere = false;   // over loopback, too, and not over Unix sockets only
  WorkPool* work_pool = nullptr;         // takes large messages apart; null: the queue's thread does
};

// Whether a Stream's peer is a process of this host, as far as TCP tells.
bool IsLoopback(std::string_view peer);

// Ends a call of which nothing has been read.
void Refuse(const RouteContext& context, std::shared_ptr<Stream> stream, const absl::Status& why);

// Runs `work` on that many bytes, of a message or for a reply: what is large leaves this thread, which others wait for.
void RunIfLarge(const RouteContext& context, int64_t bytes, absl::AnyInvocable<void()> work);

// "/normd.v1.Normalizer/Normalize" -> "Normalizer/Normalize", as records name it.
std::string_view ShortName(std::string_view path);

// Answers one unary call, once. Dropping it unanswered answers INTERNAL, which is a bug of ours and not of the caller.
class Reply {
 public:
  Reply(std::shared_ptr<Stream> stream, Observation observation)
      : stream_(std::move(stream)), observation_(std::move(observation)) {}
  Reply(Reply&&) = default;
  Reply& operator=(Reply&&) = default;
  ~Reply();

  // Sends the message, or ends the call with the status. `written` runs, or is dropped, when the transport has taken
  // the message: what it holds is held until then.
  void operator()(absl::StatusOr<grpc::ByteBuffer> message, Stream::Callback written = nullptr);

  Observation& observation() { return observation_; }

  // Tells whether the caller went away; keeps the stream as long as it is kept.
  std::function<bool()> Cancelled() const {
    return [stream = stream_] { return stream->cancelled(); };
  }
  const std::shared_ptr<Stream>& stream() const { return stream_; }

 private:
  std::shared_ptr<Stream> stream_;
  Observation observation_;
};

// Gets the message as it came, on the pool where it is large.
using BytesHandler = std::function<void(const grpc::ByteBuffer& message, Reservation reservation, Reply reply)>;
// Reads the one request message of `stream`, which takes `factor` times its bytes. One that announces its size is
// refused at headers when the server is full; the others wait until there is room to read them, and are measured when
// they have come. Ends the call when there is no message, or one that does not fit; otherwise `then` goes on with it.
void ReadRequest(const RouteContext* context, std::shared_ptr<Stream> stream, int64_t factor,
                 absl::AnyInvocable<void(grpc::ByteBuffer, Reservation, Observation)> then);

// A unary method whose messages are of tensors.
Route UnaryBytes(const RouteContext* context, std::string path, BytesHandler handler);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_ROUTE_H_

#include "tests/bench/datapath/open_loop.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "client/cpp/status.h"
#include "tests/bench/machine.h"

namespace normd::bench {

namespace {

constexpr absl::Duration kSilence = absl::Seconds(10);

struct Call {
  std::optional<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
  absl::Time due, sent;
};

class OpenLoop {
 public:
  OpenLoop(const Target& target, const OpenLoopOptions& options)
      : target_(target), options_(options), calls_(static_cast<size_t>(options.max_in_flight)) {
    for (const auto& channel : target.channels) stubs_.emplace_back(channel);
    for (Call& call : calls_) free_.push_back(&call);
  }

  ~OpenLoop() {
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }

  absl::StatusOr<OpenLoopResult> Run() {
    begin_ = SteadyNow();
    end_ = begin_ + options_.duration;
    last_event_ = begin_;
    result_.due = static_cast<int64_t>(options_.per_second * absl::ToDoubleSeconds(options_.duration));
    while (true) {
      const absl::Time now = SteadyNow();
      while (Sends(now) && Due() <= now) Send(now);
      if (!Sends(now) && free_.size() == calls_.size()) break;
      TakeEvent(now);
    }
    if (!error_.ok()) return error_;
    return std::move(result_);
  }

 private:
  // Whether anything more is to be sent. A full house waits for an answer, not for the clock.
  bool Sends(absl::Time now) const { return error_.ok() && now < end_ && result_.sent < result_.due && !free_.empty(); }
  absl::Time Due() const { return begin_ + absl::Seconds(static_cast<double>(result_.sent) / options_.per_second); }

  void Send(absl::Time now) {
    Call* const call = free_.back();
    free_.pop_back();
    call->due = Due();
    call->sent = now;
    call->reader.reset();
    call->context.emplace();
    grpc::GenericStub& stub = stubs_[static_cast<size_t>(result_.sent++) % stubs_.size()];
    call->reader = stub.PrepareUnaryCall(&*call->context, target_.method, target_.request, &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->reply, &call->status, call);
  }

  // Waits for one answer, or until the next request is due.
  void TakeEvent(absl::Time now) {
    const absl::Time until = Sends(now) ? Due() : last_event_ + kSilence;
    const auto deadline = std::chrono::system_clock::now() + absl::ToChronoNanoseconds(until - now);
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
      Finish(static_cast<Call*>(tag), SteadyNow());
    } else if (SteadyNow() > last_event_ + kSilence && free_.size() < calls_.size()) {
      Fail(absl::UnavailableError("the server says nothing"));
    }
  }

  void Finish(Call* call, absl::Time now) {
    last_event_ = now;
    free_.push_back(call);
    call->reply.Clear();
    if (call->status.ok()) {
      if (now <= end_) ++result_.answered;
      result_.millis.push_back(absl::ToDoubleMilliseconds(now - call->sent));
      result_.from_due.push_back(absl::ToDoubleMilliseconds(now - call->due));
    } else if (call->status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      ++result_.refused;
    } else {
      Fail(client::MakeStatus(call->status.error_code(), call->status.error_message(), ""));
    }
  }

  void Fail(absl::Status error) {
    if (error_.ok()) error_ = std::move(error);
    last_event_ = SteadyNow();
    for (Call& call : calls_) {
      if (call.context.has_value()) call.context->TryCancel();
    }
  }

  const Target& target_;
  const OpenLoopOptions& options_;
  grpc::CompletionQueue queue_;
  std::vector<grpc::GenericStub> stubs_;
  std::vector<Call> calls_;
  std::vector<Call*> free_;
  absl::Time begin_, end_, last_event_;
  OpenLoopResult result_;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<OpenLoopResult> RunOpenLoop(const Target& target, const OpenLoopOptions& options) {
  return OpenLoop(target, options).Run();
}

}  // namespace normd::bench

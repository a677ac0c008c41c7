#include "tests/bench/datapath/driver.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <optional>
#include <utility>

#include "client/cpp/status.h"
#include "kernels/base/strings.h"
#include "tests/bench/machine.h"

namespace normd::bench {

namespace {

// A server that says nothing for so long is dead.
constexpr absl::Duration kSilence = absl::Seconds(10);

// What an event of the queue tells its slot.
enum class Event { kStarted, kWritten, kRead, kFinished };
enum class Step { kBusy, kAnswered, kEnded };

// One of the requests that are in flight, again and again.
class Slot {
 public:
  struct Tag {
    Slot* slot;
    Event event;
  };

  Slot(const Target& target, size_t index, grpc::CompletionQueue* queue)
      : target_(target),
        request_(target.requests[index % target.requests.size()]),
        queue_(queue),
        stub_(target.channels[index % target.channels.size()]) {}
  virtual ~Slot() = default;

  virtual void Send() = 0;
  // REQUIRES: the last request was answered. True: that was all; false: kEnded comes.
  virtual bool End() = 0;
  virtual Step Take(Event event, bool ok) = 0;

  void Cancel() {
    if (context_.has_value()) context_->TryCancel();
  }

  const grpc::Status& status() const { return status_; }
  const grpc::ByteBuffer& reply() const { return reply_; }

 protected:
  const Target& target_;
  const grpc::ByteBuffer request_;
  grpc::CompletionQueue* const queue_;
  grpc::GenericStub stub_;
  std::optional<grpc::ClientContext> context_;
  grpc::ByteBuffer reply_;
  grpc::Status status_;
  Tag started_{this, Event::kStarted}, written_{this, Event::kWritten}, read_{this, Event::kRead},
      finished_{this, Event::kFinished};
};

class UnarySlot : public Slot {
 public:
  using Slot::Slot;

  void Send() override {
    call_.reset();
    context_.emplace();
    reply_.Clear();
    call_ = stub_.PrepareUnaryCall(&*context_, target_.method, request_, queue_);
    call_->StartCall();
    call_->Finish(&reply_, &status_, &finished_);
  }
  bool End() override { return true; }
  Step Take(Event, bool) override { return status_.ok() ? Step::kAnswered : Step::kEnded; }

 private:
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> call_;
};

class StreamSlot : public Slot {
 public:
  using Slot::Slot;

  void Send() override {
    if (call_ != nullptr) return Exchange();
    context_.emplace();
    call_ = stub_.PrepareCall(&*context_, target_.method, queue_);
    call_->StartCall(&started_);
  }

  bool End() override {
    ending_ = true;
    call_->WritesDone(&written_);
    return false;
  }

  Step Take(Event event, bool ok) override {
    if (event == Event::kFinished) return Step::kEnded;
    broken_ = broken_ || !ok;
    if (event == Event::kStarted && ok) {
      Exchange();
      return Step::kBusy;
    }
    if (event != Event::kStarted && !ending_ && --pending_ > 0) return Step::kBusy;
    if (!ending_ && !broken_) return Step::kAnswered;
    call_->Finish(&status_, &finished_);
    return Step::kBusy;
  }

 private:
  void Exchange() {
    pending_ = 2;
    reply_.Clear();
    call_->Write(request_, &written_);
    call_->Read(&reply_, &read_);
  }

  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  int pending_ = 0;  // of a write and a read
  bool broken_ = false, ending_ = false;
};

// What closed and open loops have in common: slots, their queue, and the first error.
class Loop {
 public:
  Loop(const Target& target, int in_flight) {
    for (int i = 0; i < in_flight; ++i) {
      const auto index = static_cast<size_t>(i);
      if (target.stream) {
        slots_.push_back(std::make_unique<StreamSlot>(target, index, &queue_));
      } else {
        slots_.push_back(std::make_unique<UnarySlot>(target, index, &queue_));
      }
    }
  }

  ~Loop() {
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }

 protected:
  // A slot that has something to say, and what; null where `wait` has passed.
  std::pair<Slot*, Step> TakeEvent(absl::Duration wait) {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + absl::ToChronoNanoseconds(wait);
    if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) return {nullptr, Step::kBusy};
    const auto* const event = static_cast<Slot::Tag*>(tag);
    return {event->slot, event->slot->Take(event->event, ok)};
  }

  // Cancelled calls end soon, whatever the server does.
  void Fail(absl::Status error) {
    if (error_.ok()) error_ = std::move(error);
    for (const auto& slot : slots_) slot->Cancel();
  }
  void FailAs(const grpc::Status& status) {
    Fail(client::MakeStatus(status.error_code(), status.error_message(), status.error_details()));
  }

  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Slot>> slots_;
  absl::Status error_;
};

class ClosedLoop : public Loop {
 public:
  ClosedLoop(const Target& target, int in_flight) : Loop(target, in_flight), target_(target) {}

  absl::StatusOr<LoopResult> Run(absl::Duration duration) {
    const absl::Time begin = SteadyNow();
    end_ = last_ = begin + duration;
    for (const auto& slot : slots_) slot->Send();
    for (size_t live = slots_.size(); live > 0;) {
      if (EndsSlot()) --live;
    }
    if (!error_.ok()) return error_;
    return LoopResult{requests_, last_ - begin, slots_.front()->reply()};
  }

 private:
  // Waits for an event; true where it was the last of a slot.
  bool EndsSlot() {
    const auto [slot, step] = TakeEvent(kSilence);
    if (slot == nullptr) Fail(absl::UnavailableError("the server says nothing"));
    if (step == Step::kAnswered) return Answered(slot);
    if (step == Step::kEnded && !slot->status().ok()) FailAs(slot->status());
    return step == Step::kEnded;
  }

  bool Answered(Slot* slot) {
    if (slot->reply().Length() < target_.min_reply_bytes) Fail(absl::InternalError("a reply without its result"));
    ++requests_;
    last_ = SteadyNow();
    if (last_ >= end_ || !error_.ok()) return slot->End();
    slot->Send();
    return false;
  }

  const Target& target_;
  absl::Time end_, last_;
  int64_t requests_ = 0;
};

class OpenLoop : public Loop {
 public:
  OpenLoop(const Target& target, const OpenLoopOptions& options)
      : Loop(target, options.max_in_flight), options_(options) {
    for (const auto& slot : slots_) free_.push_back(slot.get());
  }

  absl::StatusOr<OpenLoopResult> Run() {
    begin_ = last_event_ = SteadyNow();
    for (absl::Time now = begin_; Sends(now) || free_.size() < slots_.size(); now = SteadyNow()) {
      for (; Sends(now) && Due() <= now; ++result_.sent) {
        free_.back()->Send();
        free_.pop_back();
      }
      // A full house waits for an answer, not for the clock.
      const absl::Time until = Sends(now) ? Due() : last_event_ + kSilence;
      if (Slot* const slot = TakeEvent(until - now).first; slot != nullptr) {
        Finish(slot);
      } else if (SteadyNow() > last_event_ + kSilence && free_.size() < slots_.size()) {
        last_event_ = SteadyNow();
        Fail(absl::UnavailableError("the server says nothing"));
      }
    }
    if (!error_.ok()) return error_;
    return result_;
  }

 private:
  // Whether anything more is to be sent, and can be.
  bool Sends(absl::Time now) const { return error_.ok() && now < begin_ + options_.duration && !free_.empty(); }
  absl::Time Due() const { return begin_ + absl::Seconds(static_cast<double>(result_.sent) / options_.per_second); }

  void Finish(Slot* slot) {
    last_event_ = SteadyNow();
    free_.push_back(slot);
    if (slot->status().ok()) {
      if (last_event_ <= begin_ + options_.duration) ++result_.answered;
    } else if (slot->status().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      ++result_.refused;
    } else {
      FailAs(slot->status());
    }
  }

  const OpenLoopOptions& options_;
  std::vector<Slot*> free_;
  absl::Time begin_, last_event_;
  OpenLoopResult result_;
};

}  // namespace

std::vector<std::shared_ptr<grpc::Channel>> NewChannels(const std::string& address, int count) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < count; ++i) {
    channels.push_back(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }
  return channels;
}

absl::StatusOr<LoopResult> RunClosedLoop(const Target& target, int in_flight, absl::Duration duration) {
  return ClosedLoop(target, in_flight).Run(duration);
}

absl::StatusOr<OpenLoopResult> RunOpenLoop(const Target& target, const OpenLoopOptions& options) {
  return OpenLoop(target, options).Run();
}

absl::Status WithContext(const absl::Status& status, const std::string& context) {
  return status.ok() ? status : absl::Status(status.code(), Concat(context, ": ", std::string(status.message())));
}

}  // namespace normd::bench

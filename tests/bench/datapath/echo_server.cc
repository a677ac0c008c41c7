#include <unistd.h>

#include <string_view>
#include <thread>

#include "tests/bench/datapath/opponents.h"

namespace normd::bench {

namespace {

// More than are ever in flight: no call waits for its turn to be taken.
constexpr int kCallsPerQueue = 64;

// One RPC. Of a stream, the next message is waited for while the one before it goes back.
class EchoCall {
 public:
  enum class Event { kArrived, kRead, kWritten, kFinished };
  struct Tag {
    EchoCall* call;
    Event event;
  };

  EchoCall(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue) : service_(service), queue_(queue) {
    service_->RequestCall(&context_, &stream_, queue, queue, &arrived_);
  }

  // True: nothing is under way any more, the call is to be deleted.
  bool Take(Event event, bool ok) {
    --under_way_;
    if (event == Event::kArrived) {
      if (!ok) return true;
      new EchoCall(service_, queue_);
      streams_ = std::string_view(context_.method()).ends_with("Stream");
      Read();
    } else if (event == Event::kRead) {
      read_ = ok;
      ended_ = !ok;
    } else if (event == Event::kWritten) {
      writing_ = false;
    }
    Proceed();
    return under_way_ == 0;
  }

 private:
  void Proceed() {
    if (writing_ || finishing_) return;
    if (read_) Write();
    if (ended_) Finish();
  }
  void Read() {
    ++under_way_;
    stream_.Read(&message_, &read_done_);
  }
  void Write() {
    read_ = false;
    ++under_way_;
    if (!streams_) {
      finishing_ = true;
      return stream_.WriteAndFinish(message_, grpc::WriteOptions(), grpc::Status::OK, &finished_);
    }
    writing_ = true;
    stream_.Write(message_, &written_);
    Read();
  }
  void Finish() {
    finishing_ = true;
    ++under_way_;
    stream_.Finish(grpc::Status::OK, &finished_);
  }

  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  Tag arrived_{this, Event::kArrived}, read_done_{this, Event::kRead}, written_{this, Event::kWritten},
      finished_{this, Event::kFinished};
  grpc::ByteBuffer message_;
  int under_way_ = 1;  // operations; the arrival is the first
  bool streams_ = false;
  bool read_ = false;  // a message waits to go back
  bool writing_ = false, ended_ = false, finishing_ = false;
};

void ServeQueue(grpc::ServerCompletionQueue* queue) {
  void* tag = nullptr;
  for (bool ok = false; queue->Next(&tag, &ok);) {
    const auto [call, event] = *static_cast<EchoCall::Tag*>(tag);
    if (call->Take(event, ok)) delete call;
  }
}

}  // namespace

void EchoServer::AddTo(grpc::ServerBuilder& builder, int queues) {
  builder.RegisterAsyncGenericService(&service_);
  for (int i = 0; i < queues; ++i) queues_.push_back(builder.AddCompletionQueue());
}

void EchoServer::Serve() {
  for (const auto& queue : queues_) {
    for (int i = 0; i < kCallsPerQueue; ++i) new EchoCall(&service_, queue.get());
    std::thread(ServeQueue, queue.get()).detach();
  }
  while (true) pause();
}

}  // namespace normd::bench

#include "tests/server/rpc/http2/echo_fixture.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/strings.h"
#include "server/net/listening_socket.h"
#include "tests/support/eventually.h"

namespace normd::rpc::http2 {

// A thread that runs what other threads give it.
class EchoServer::Worker {
 public:
  Worker() : thread_([this] { Run(); }) {}
  ~Worker() {
    Add(nullptr);
    thread_.join();
  }
  void Add(absl::AnyInvocable<void()> work) {
    MutexLock lock(mu_);
    work_.push_back(std::move(work));
    changed_.Signal();
  }

 private:
  void Run() {
    while (true) {
      absl::AnyInvocable<void()> work;
      {
        MutexLock lock(mu_);
        while (work_.empty()) changed_.Wait(mu_);
        work = std::move(work_.front());
        work_.pop_front();
      }
      if (!work) return;
      work();
    }
  }

  Mutex mu_;
  CondVar changed_;
  std::deque<absl::AnyInvocable<void()>> work_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

namespace {

// A call that is being served. Callbacks of its operations keep it alive.
struct EchoCall : std::enable_shared_from_this<EchoCall> {
  explicit EchoCall(std::atomic<int>* destroyed_calls) : destroyed(destroyed_calls) {}
  ~EchoCall() { ++*destroyed; }
  EchoCall(const EchoCall&) = delete;
  EchoCall& operator=(const EchoCall&) = delete;

  std::atomic<int>* const destroyed;
  std::shared_ptr<RpcCall> call;

  void EchoOne() {
    call->Read([self = shared_from_this()](std::optional<MessageBytes> message) {
      if (!message.has_value()) return self->call->Finish(absl::InvalidArgumentError("no message"));
      if (self->call->method() == "/echo.Echo/Slow") std::this_thread::sleep_for(std::chrono::milliseconds(1));
      self->call->WriteAndFinish(*std::move(message), [self] {});
    });
  }

  void EchoAll() {
    call->Read([self = shared_from_this()](std::optional<MessageBytes> message) {
      if (!message.has_value()) {
        self->call->AddTrailer("x-end", "yes");
        return self->call->Finish(absl::OkStatus(), [self] {});
      }
      self->call->Write(*std::move(message), [self] { self->EchoAll(); });
    });
  }

  void Fill() {
    call->Read([self = shared_from_this()](std::optional<MessageBytes> message) {
      if (!message.has_value()) return self->call->Finish(absl::InvalidArgumentError(""));
      const size_t size = std::stoul(std::string(message->slices()[0].text()));
      self->call->WriteAndFinish(MessageBytes(Slice(std::string(size, 'f'))), [self] {});
    });
  }

  void TellSize() {
    call->ReadSize([self = shared_from_this()](std::optional<int64_t> bytes) {
      self->call->Read([self, bytes](std::optional<MessageBytes> message) {
        const int64_t got = message.has_value() ? message->size_bytes() : -1;
        self->call->WriteAndFinish(MessageBytes(Slice(Concat(bytes.value_or(-1), " ", got))));
      });
    });
  }

  void TellFields() {
    std::string text;
    call->VisitMetadata(
        [&text](std::string_view key, std::string_view value) { text += Concat(key, "=", value, "\n"); });
    call->AddTrailer("x-trailer", "a value");
    call->WriteAndFinish(MessageBytes(Slice(text)));
  }

  void Fail() {
    call->AddTrailer("x-why", "asked");
    call->Finish(absl::NotFoundError("100 % of \xC3\xA4ll\n"));
  }

  void TellPeer() {
    const net::TlsPeer& peer = *call->tls_peer();
    const std::string text = Concat(peer.is_encrypted ? "encrypted " : "plain ", peer.certificate_name);
    call->WriteAndFinish(MessageBytes(Slice(text)));
  }

  void Hang() {
    call->Read([self = shared_from_this()](std::optional<MessageBytes>) {});
  }
};

void Serve(const std::shared_ptr<EchoCall>& echo) {
  const std::string_view method = std::string_view(echo->call->method()).substr(sizeof("/echo.Echo/") - 1);
  if (method == "Unary" || method == "Slow" || method == "Hold") return echo->EchoOne();
  if (method == "Stream") return echo->EchoAll();
  if (method == "Fill") return echo->Fill();
  if (method == "Size") return echo->TellSize();
  if (method == "Fields") return echo->TellFields();
  if (method == "Peer") return echo->TellPeer();
  if (method == "Fail") return echo->Fail();
  if (method == "Hang") return echo->Hang();
  if (method == "Cancel") return echo->call->Cancel();
  if (method != "Idle") echo->call->Finish(absl::UnimplementedError("no such method"));
}

}  // namespace

EchoServer::EchoServer(RpcOptions options) : options_(std::move(options)), worker_(std::make_unique<Worker>()) {
  options_.max_cancels_per_second = 100;  // so that floods are short
  if (options_.queues == 0) options_.queues = 1;
  if (options_.max_concurrent_streams == 0) options_.max_concurrent_streams = 16;
  transport_ = std::make_unique<Http2Transport>(&options_, &connections_, pool_.get());
  const absl::Status started = transport_->Start({&live_, &connections_}, [this](std::shared_ptr<RpcCall> call) {
    ++counts_.calls;
    auto echo = std::make_shared<EchoCall>(&counts_.destroyed);
    echo->call = std::move(call);
    echo->call->WhenOver([this, echo](const absl::Status& end) {
      if (!end.ok()) ++counts_.cancelled;
      ++counts_.over;
    });
    if (echo->call->method() == "/echo.Echo/Worker") {
      worker_->Add([echo] { echo->EchoOne(); });
    } else {
      if (echo->call->method() == "/echo.Echo/Hold") WaitFor(released_, ++held_);
      Serve(echo);
    }
  });
  if (!started.ok()) std::abort();
  absl::StatusOr<std::vector<net::ListeningSocket>> listeners = net::Listen("127.0.0.1:0");
  if (!listeners.ok()) std::abort();
  target_ = Concat("127.0.0.1:", listeners->front().port());
  accept_loop_ = std::make_unique<AcceptLoop>(AcceptLoop::Options{.tls = options_.certificates != nullptr},
                                              &connections_, transport_.get());
  if (!accept_loop_->Start(*std::move(listeners)).ok()) std::abort();
}

EchoServer::~EchoServer() {
  accept_loop_->Stop();
  transport_->Shutdown();
  // Stop asks for it, and a call that stays behind is a fault of the transport.
  if (!WaitFor(counts_.destroyed, counts_.calls.load())) std::abort();
  worker_.reset();
  transport_->Stop();
}

std::shared_ptr<grpc::Channel> EchoServer::Connect(std::shared_ptr<grpc::ChannelCredentials> credentials) const {
  if (credentials == nullptr) credentials = grpc::InsecureChannelCredentials();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(target_, credentials, arguments);
}

bool EchoServer::WaitFor(const std::atomic<int>& count, int wanted) {
  return Eventually([&] { return count.load() >= wanted; });
}

bool EchoServer::WaitForClosed(RefusedFor reason, int wanted) const {
  return Eventually([&] { return closed(reason) >= wanted; });
}

EchoReply Ask(const std::shared_ptr<grpc::Channel>& channel, const EchoRequest& request) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(request.deadline_ms));
  for (const auto& [key, value] : request.metadata) context.AddMetadata(key, value);
  grpc::Slice slice(request.body);
  const grpc::ByteBuffer body(&slice, 1);
  auto call = stub.PrepareUnaryCall(&context, "/echo.Echo/" + request.method, body, &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  EchoReply reply = {.code = status.error_code(), .message = status.error_message(), .details = status.error_details()};
  std::vector<grpc::Slice> slices;
  if (status.ok() && answer.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices) reply.body.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
    reply.trailers.emplace(std::string(key.data(), key.size()), std::string(value.data(), value.size()));
  }
  return reply;
}

std::string Pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 7 + i / 251) % 253);
  return bytes;
}

}  // namespace normd::rpc::http2

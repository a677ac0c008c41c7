#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/status.h"
#include "kernels/base/status_macros.h"
#include "normd/v1/sessions.grpc.pb.h"
#include "tests/bench/comparison.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/machine.h"
#include "tests/bench/statistics/counting_session.h"
#include "tests/bench/statistics/sections.h"

namespace normd::bench {
namespace {

constexpr int64_t kChannels = 376;
constexpr int kConnections = 8;
// A server that says nothing for so long is dead.
constexpr std::chrono::seconds kSilence(10);

struct Load {
  size_t contributors = 0;
  size_t in_flight = 0;   // at most; never two of one contributor
  double per_second = 0;  // of all; 0: the next one as soon as one was answered
  absl::Duration duration;
};

struct Contributor {
  uint64_t sequence = 0;
  // Of the flush under way, if there is one.
  absl::Time due;
  std::optional<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::StateResult>> call;
  v1::StateResult reply;
  grpc::Status status;
};

// Flushes of all contributors in turn. Times count from the moment that a flush was due, also where it was sent late.
class Flushes {
 public:
  Flushes(const std::string& address, const Load& load) : load_(load), contributors_(load.contributors) {
    for (const auto& channel : NewChannels(address, kConnections)) stubs_.push_back(v1::Sessions::NewStub(channel));
  }
  ~Flushes() {
    for (Contributor& one : contributors_) {
      if (one.context.has_value()) one.context->TryCancel();
    }
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }

  absl::Status Run() {
    const absl::Time begin = SteadyNow();
    for (absl::Time now = begin; now < begin + load_.duration; now = SteadyNow()) {
      const absl::Time due =
          load_.per_second > 0 ? begin + absl::Seconds(static_cast<double>(sent_) / load_.per_second) : now;
      if (due <= now && under_way_ < load_.in_flight && !contributors_[Next()].context.has_value()) {
        Send(due);
      } else {
        // A full house waits for an answer, not for the clock.
        NORMD_RETURN_IF_ERROR(Answer(due > now ? absl::ToChronoNanoseconds(due - now) : kSilence));
      }
    }
    while (under_way_ > 0) NORMD_RETURN_IF_ERROR(Answer(kSilence));
    seconds_ = absl::ToDoubleSeconds(SteadyNow() - begin);
    return absl::OkStatus();
  }

  const std::vector<double>& millis() const { return millis_; }
  double seconds() const { return seconds_; }

 private:
  size_t Next() const { return sent_ % contributors_.size(); }

  void Send(absl::Time due) {
    const size_t number = Next();
    Contributor& one = contributors_[number];
    one.due = due;
    one.context.emplace();
    const v1::CommitMomentsRequest request = FlushOf(kChannels, static_cast<int>(number), ++one.sequence);
    one.call = stubs_[number % stubs_.size()]->AsyncCommitMoments(&*one.context, request, &queue_);
    one.call->Finish(&one.reply, &one.status, &one);
    ++sent_;
    ++under_way_;
  }

  absl::Status Answer(std::chrono::nanoseconds wait) {
    void* tag = nullptr;
    bool ok = false;
    const auto event = queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + wait);
    if (event != grpc::CompletionQueue::GOT_EVENT) {
      return wait < kSilence ? absl::OkStatus() : absl::UnavailableError("the server says nothing");
    }
    Contributor& one = *static_cast<Contributor*>(tag);
    millis_.push_back(absl::ToDoubleMilliseconds(SteadyNow() - one.due));
    one.call.reset();
    one.context.reset();
    --under_way_;
    if (!one.status.ok()) return client::MakeStatus(one.status.error_code(), one.status.error_message(), "");
    const bool counted = one.reply.applied() && one.reply.has_state() && !one.reply.replayed();
    return counted ? absl::OkStatus() : absl::InternalError("a flush was not counted");
  }

  const Load load_;
  std::vector<Contributor> contributors_;
  std::vector<std::unique_ptr<v1::Sessions::Stub>> stubs_;
  grpc::CompletionQueue queue_;
  size_t sent_ = 0, under_way_ = 0;
  std::vector<double> millis_;
  double seconds_ = 0;
};

absl::Status MeasureLoad(const std::string& name, const Load& load, Report* report) {
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<CountingServer> server, CountingServer::Start(kChannels));
  Flushes flushes(server->address(), load);
  NORMD_ASSIGN_OR_RETURN(const absl::Duration before, server->CpuTime());
  NORMD_RETURN_IF_ERROR(flushes.Run());
  NORMD_ASSIGN_OR_RETURN(const absl::Duration after, server->CpuTime());
  const auto count = static_cast<double>(flushes.millis().size());
  NORMD_ASSIGN_OR_RETURN(const v1::Session session, server->client().GetSession(kSessionName));
  if (session.version() != flushes.millis().size()) return absl::InternalError("the session missed a flush");
  report->Row(name,
              {Amount(count / flushes.seconds()), Amount(Percentile(flushes.millis(), 0.5)),
               Amount(Percentile(flushes.millis(), 0.99)), Amount(absl::ToDoubleMicroseconds(after - before) / count),
               Ratio(absl::ToDoubleSeconds(after - before) / flushes.seconds())});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureContributors(const Flags& flags, Report* report) {
  report->Table("durable flushes of 376 channels, which are answered with the state; the server's CPU",
                {"flushes/s", "p50 ms", "p99 ms", "CPU us", "cores"});
  const auto contributors = static_cast<size_t>(flags.Pick(1000, 1000, 20));
  const absl::Duration duration = absl::Seconds(flags.Pick(20.0, 5.0, 0.2));
  const Load paced = {contributors, contributors, static_cast<double>(contributors), duration};
  const Load closed = {contributors, 64, 0, duration / 2};
  if (flags.Chosen("contributors 1/s")) NORMD_RETURN_IF_ERROR(MeasureLoad("contributors 1/s", paced, report));
  if (flags.Chosen("contributors 64")) NORMD_RETURN_IF_ERROR(MeasureLoad("contributors 64", closed, report));
  return absl::OkStatus();
}

}  // namespace normd::bench

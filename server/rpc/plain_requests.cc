#include "server/rpc/plain_requests.h"

#include <utility>
#include <vector>

#include "kernels/methods.h"
#include "server/rpc/encode.h"

namespace normd::rpc {

std::optional<absl::StatusOr<grpc::ByteBuffer>> PlainRequests::Answer(const ReceivedMessage& message,
                                                                      Observation& observation) const {
  if (!message.split.has_value() || message.split->blocks.size() != 1) return std::nullopt;
  const std::shared_ptr<const Known> known = Find(message.split->metadata);
  if (known == nullptr) return std::nullopt;
  const wire::Block& block = message.split->blocks.front();
  if (static_cast<int64_t>(block.size_bytes) != known->call->y_bytes) return std::nullopt;

  const std::vector<Segment> segments = wire::SegmentsOf(message.bytes.segments(), block);
  TensorView x;
  if (segments.size() == 1) {
    x.data = segments.front().data();
  } else {
    x.segments = segments;
  }
  Buffer together;
  if (x.scattered() && !known->call->takes_segments) together = engine_->buffers().Take(block.size_bytes);
  Buffer y = engine_->buffers().Take(block.size_bytes);
  RequestRecord& record = observation.record();
  record.norm_method = known->norm_method;
  observation.DecodeDone();
  const absl::Status status = RunPrepared(engine_->backend(), *known->call, x, together.data(), y.data());
  if (!status.ok()) return status;
  record.compute = observation.Elapsed() - record.decode;
  record.rows = known->call->plan.Sets();
  WireBody reply;
  reply.Append(known->reply_head);
  reply.AppendBlock(std::move(y));
  return std::move(reply).ToByteBuffer();
}

void PlainRequests::Remember(const std::string& metadata, const v1::NormalizeRequest& request, const Call& call) {
  if (request.want_timings() || !request.x().has_data()) return;
  auto known = std::make_shared<Known>();
  known->call = PrepareCall(engine_->sessions(), engine_->backend(), call);
  if (known->call == nullptr) return;
  known->reply_head = EncodePlainReplyHead(known->call->applied, known->call->plan, known->call->y_bytes);
  known->norm_method = Info(known->call->applied.method).name;
  MutexLock lock(mu_);
  if (known_.size() >= kMaxRequests) known_.clear();
  known_.emplace(metadata, std::move(known));
}

std::shared_ptr<const PlainRequests::Known> PlainRequests::Find(std::string_view metadata) const {
  if (metadata.size() > kMaxKeyBytes) return nullptr;
  MutexLock lock(mu_);
  const auto found = known_.find(metadata);
  return found == known_.end() ? nullptr : found->second;
}

}  // namespace normd::rpc

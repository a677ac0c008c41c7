#include "server/rpc/codec/tensor_source.h"

#include <algorithm>
#include <utility>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/errors.h"
#include "server/shm/mapped_region.h"

namespace normd::rpc {
namespace {

int64_t SizeOf(absl::Span<const Segment> segments) {
  size_t size = 0;
  for (const Segment& segment : segments) size += segment.size();
  return static_cast<int64_t>(size);
}

}  // namespace

ReceivedBytes::ReceivedBytes(MessageBytes bytes) : bytes_(std::move(bytes)) {
  segments_.reserve(bytes_.slices().size());
  for (const Slice& slice : bytes_.slices()) {
    segments_.emplace_back(reinterpret_cast<const std::byte*>(slice.data()), slice.size());
  }
}

MessageBytes ReceivedBytes::PartOf(const wire::Block& block) const {
  MessageBytes part;
  size_t begin = 0;
  for (const Slice& slice : bytes_.slices()) {
    const size_t end = begin + slice.size();
    const size_t from = std::max(begin, block.offset);
    const size_t to = std::min(end, block.offset + block.size_bytes);
    if (from < to) part.Append(slice.Part(from - begin, to - begin));
    begin = end;
  }
  return part;
}

void TensorSource::SetBlocks(ReceivedBytes bytes, std::vector<wire::Block> blocks) {
  bytes_ = std::move(bytes);
  blocks_ = std::move(blocks);
  pieces_.resize(blocks_.size());
  in_message_ = false;
}

void TensorSource::AwaitChunked(std::string_view field, int64_t size_bytes) {
  Chunked& chunked = chunked_.emplace_back();
  chunked.field = field;
  if (size_bytes > 0) chunked.awaited.emplace_back(nullptr, static_cast<size_t>(size_bytes));
}

void TensorSource::AddChunked(std::string_view field, std::vector<ReceivedBytes> bytes) {
  Chunked& chunked = *FindChunked(field);
  chunked.awaited.clear();
  chunked.bytes = std::move(bytes);
  for (const ReceivedBytes& part : chunked.bytes) {
    chunked.pieces.segments.insert(chunked.pieces.segments.end(), part.segments().begin(), part.segments().end());
  }
}

void TensorSource::AddChunked(std::string_view field, Buffer contiguous) {
  Chunked& chunked = *FindChunked(field);
  chunked.awaited.clear();
  chunked.pieces.contiguous = std::move(contiguous);
}

MessageBytes TensorSource::TakeChunk(const std::string& data) const {
  if (in_message_) return MessageBytes(Slice::Copy(data));
  const size_t number = data.empty() ? blocks_.size() : wire::BlockNumber(data);
  if (number >= blocks_.size()) return {};
  return bytes_.PartOf(blocks_[number]);
}

TensorSource::Chunked* TensorSource::FindChunked(std::string_view field) {
  const auto found = std::find_if(chunked_.begin(), chunked_.end(),
                                  [field](const Chunked& chunked) { return chunked.field == field; });
  return found == chunked_.end() ? nullptr : &*found;
}

absl::StatusOr<TensorSource::Bytes> TensorSource::Find(const v1::Tensor& tensor, std::string_view field,
                                                       bool may_be_scattered) {
  switch (tensor.payload_case()) {
    case v1::Tensor::kShared: {
      NORMD_ASSIGN_OR_RETURN(const RegionRange range, Acquire(tensor.shared(), Concat(field, ".shared")));
      return Bytes{range.data, range.size_bytes, {}, range.space};
    }
    case v1::Tensor::kChunked:
      if (Chunked* const chunked = FindChunked(field); chunked != nullptr) {
        if (chunked->awaited.empty()) return FindPieces(chunked->pieces, may_be_scattered);
        return Bytes{nullptr, SizeOf(chunked->awaited), chunked->awaited};
      }
      return NotAllowedError(Concat(field, ".chunked"),
                             "only x and residual.tensor of a stream's calls travel in chunks");
    default:
      break;
  }
  const std::string& data = tensor.data();
  if (in_message_ || !tensor.has_data()) return Bytes{data.data(), static_cast<int64_t>(data.size())};
  const size_t number = wire::BlockNumber(data);
  if (number >= blocks_.size()) return MissingError(Concat(field, ".data"), "bytes");  // impossible: Split made both
  return FindBlock(number, may_be_scattered);
}

TensorSource::Bytes TensorSource::FindBlock(size_t number, bool may_be_scattered) {
  Pieces& pieces = pieces_[number];
  if (pieces.segments.empty()) pieces.segments = wire::SegmentsOf(bytes_.segments(), blocks_[number]);
  return FindPieces(pieces, may_be_scattered);
}

TensorSource::Bytes TensorSource::FindPieces(Pieces& pieces, bool may_be_scattered) {
  if (pieces.contiguous.data() != nullptr) {
    return {pieces.contiguous.data(), static_cast<int64_t>(pieces.contiguous.size_bytes())};
  }
  const absl::Span<const Segment> segments = pieces.segments;
  if (segments.empty()) return {};
  const int64_t size = SizeOf(segments);
  if (segments.size() == 1) return {segments.front().data(), size};
  if (may_be_scattered) return {nullptr, size, segments};
  const auto size_bytes = static_cast<size_t>(size);
  pieces.contiguous = buffers_ == nullptr ? Buffer(size_bytes) : buffers_->Take(size_bytes);
  GatherSegments(segments, 0, size, pieces.contiguous.data());
  return {pieces.contiguous.data(), size};
}

absl::StatusOr<SharedBytes> TensorSource::FindOutput(const v1::SharedRange& range, std::string_view field) {
  NORMD_ASSIGN_OR_RETURN(const RegionRange acquired, Acquire(range, field));
  return SharedBytes{acquired.data, acquired.size_bytes, range.region(), range.offset(), acquired.space};
}

absl::StatusOr<RegionRange> TensorSource::Acquire(const v1::SharedRange& range, std::string_view field) {
  if (shared_memory_.regions == nullptr) return NotAllowedError(field, shared_memory_.refusal);
  absl::StatusOr<RegionRange> acquired =
      shared_memory_.regions->Acquire(shared_memory_.tenant, range.region(), range.offset(), range.size_bytes());
  if (!acquired.ok()) return PrefixField(acquired.status(), Concat(field, "."));
  if (acquired->size_bytes == 0) acquired->space = {};  // nobody reads an empty range, so its space does not matter
  ranges_.push_back(*acquired);
  const CudaEvent* const event = acquired->size_bytes == 0 ? nullptr : acquired->event();
  if (event != nullptr && std::find(events_.begin(), events_.end(), event) == events_.end()) events_.push_back(event);
  return acquired;
}

absl::Status TensorSource::CheckRegions() const {
  for (const RegionRange& range : ranges_) {
    if (range.truncated()) return RegionTruncatedError();
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TensorSource::EventsCompleted() const {
  for (const CudaEvent* event : events_) {
    NORMD_ASSIGN_OR_RETURN(const bool completed, event->completed());
    if (!completed) return false;
  }
  return true;
}

}  // namespace normd::rpc

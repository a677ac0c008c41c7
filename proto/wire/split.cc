#include "proto/wire/split.h"

#include <algorithm>
#include <cstring>

#include "proto/wire/writer.h"

namespace normd::wire {
namespace {

constexpr size_t kTokenBytes = sizeof(uint32_t);
// Tags and lengths of our messages take at most four bytes. The fifth byte has bits that only the parser judges.
constexpr int kMaxShortVarintBytes = 4;
// Enough for the metadata of a request with a spec and a tensor.
constexpr size_t kUsualMetadataBytes = 192;

// A varint and its encoding, which need not be the shortest.
struct RawVarint {
  uint64_t value = 0;
  char bytes[kMaxVarintBytes];
  int size = 0;

  void AppendTo(std::string& out) const { out.append(bytes, static_cast<size_t>(size)); }
};

// Reads across segments. Positions are offsets in the whole message.
class Reader {
 public:
  explicit Reader(absl::Span<const Segment> segments) : segments_(segments) {}

  size_t position() const { return position_; }

  // Reads a varint. Returns false at the end of the bytes, and for a varint of more than `max_bytes`.
  bool ReadVarint(int max_bytes, RawVarint& varint) {
    varint.value = 0;
    for (varint.size = 0; varint.size < max_bytes;) {
      const std::byte* const next = Peek();
      if (next == nullptr) return false;
      Advance(1);
      const auto byte = static_cast<uint8_t>(*next);
      varint.value |= uint64_t{byte & 0x7fu} << (7 * varint.size);
      varint.bytes[varint.size++] = static_cast<char>(byte);
      if (byte < 0x80) return true;
    }
    return false;
  }

  // Appends the next `size` bytes to `out`, or skips them if `out` is null. REQUIRES: at least `size` bytes follow.
  void Take(size_t size, std::string* out) {
    while (size > 0) {
      const std::byte* const next = Peek();
      const size_t n = std::min(size, segments_[index_].size() - at_);
      if (out != nullptr) out->append(reinterpret_cast<const char*>(next), n);
      Advance(n);
      size -= n;
    }
  }

 private:
  const std::byte* Peek() {
    while (index_ < segments_.size() && at_ == segments_[index_].size()) {
      ++index_;
      at_ = 0;
    }
    return index_ == segments_.size() ? nullptr : segments_[index_].data() + at_;
  }

  void Advance(size_t n) {
    at_ += n;
    position_ += n;
  }

  const absl::Span<const Segment> segments_;
  size_t index_ = 0;  // the current segment
  size_t at_ = 0;     // offset in the current segment
  size_t position_ = 0;
};

// Walks a message along its layout and writes metadata and blocks to `out`.
class Splitter {
 public:
  Splitter(absl::Span<const Segment> segments, SplitMessage& out) : reader_(segments), out_(out) {}

  // Walks the fields up to position `end`. Returns false if Split must return nothing.
  bool Walk(const MessageLayout& layout, size_t end) {
    while (reader_.position() < end) {
      RawVarint tag;
      if (!reader_.ReadVarint(kMaxShortVarintBytes, tag)) return false;
      const auto field = static_cast<uint32_t>(tag.value >> 3);
      if (field == 0 || out_.metadata.size() > kMaxMetadataBytes) return false;
      tag.AppendTo(out_.metadata);
      if (!WalkValue(layout, field, tag.value & 7, end)) return false;
    }
    return reader_.position() == end && out_.metadata.size() <= kMaxMetadataBytes;
  }

 private:
  bool WalkValue(const MessageLayout& layout, uint32_t field, uint64_t wire_type, size_t end) {
    switch (static_cast<WireType>(wire_type)) {
      case WireType::kVarint: {
        RawVarint value;
        if (!reader_.ReadVarint(kMaxVarintBytes, value)) return false;
        value.AppendTo(out_.metadata);
        return true;
      }
      case WireType::kFixed64:
        return Copy(sizeof(uint64_t), end);
      case WireType::kFixed32:
        return Copy(sizeof(uint32_t), end);
      case WireType::kDelimited:
        return WalkDelimited(layout, field, end);
      default:
        return false;
    }
  }

  bool WalkDelimited(const MessageLayout& layout, uint32_t field, size_t end) {
    RawVarint size;
    if (!reader_.ReadVarint(kMaxShortVarintBytes, size) || reader_.position() > end) return false;
    if (size.value > end - reader_.position()) return false;
    for (const MessageLayout::Field& known : layout.fields) {
      if (known.number != field) continue;
      return known.message == nullptr ? TakeBlock(size.value) : WalkMessage(*known.message, size.value);
    }
    size.AppendTo(out_.metadata);
    return Copy(size.value, end);
  }

  bool TakeBlock(size_t size) {
    const auto number = static_cast<uint32_t>(out_.blocks.size());
    out_.blocks.push_back({reader_.position(), size});
    AppendVarint(kTokenBytes, out_.metadata);
    out_.metadata.append(reinterpret_cast<const char*>(&number), kTokenBytes);
    reader_.Take(size, nullptr);
    return true;
  }

  // The embedded message gets the length that it has without its tensors.
  bool WalkMessage(const MessageLayout& layout, size_t size) {
    const size_t begin = out_.metadata.size();
    if (!Walk(layout, reader_.position() + size)) return false;
    std::string length;
    AppendVarint(out_.metadata.size() - begin, length);
    out_.metadata.insert(begin, length);
    return true;
  }

  bool Copy(size_t size, size_t end) {
    if (size > end - std::min(end, reader_.position())) return false;
    if (size > kMaxMetadataBytes - std::min(kMaxMetadataBytes, out_.metadata.size())) return false;
    reader_.Take(size, &out_.metadata);
    return true;
  }

  Reader reader_;
  SplitMessage& out_;
};

}  // namespace

std::optional<SplitMessage> Split(absl::Span<const Segment> segments, const MessageLayout& layout) {
  size_t size = 0;
  for (const Segment& segment : segments) size += segment.size();
  std::optional<SplitMessage> message(std::in_place);
  message->metadata.reserve(kUsualMetadataBytes);
  if (!Splitter(segments, *message).Walk(layout, size)) message.reset();
  return message;
}

std::optional<std::vector<TopField>> TopFields(absl::Span<const Segment> segments, size_t max_fields) {
  size_t end = 0;
  for (const Segment& segment : segments) end += segment.size();
  Reader reader(segments);
  std::vector<TopField> fields;
  fields.reserve(std::min<size_t>(max_fields, 2));
  while (reader.position() < end) {
    RawVarint tag, value;
    if (fields.size() == max_fields || !reader.ReadVarint(kMaxShortVarintBytes, tag)) return std::nullopt;
    TopField& field = fields.emplace_back();
    field.number = static_cast<uint32_t>(tag.value >> 3);
    field.type = static_cast<WireType>(tag.value & 7);
    if (field.number == 0) return std::nullopt;
    if (field.type == WireType::kVarint) {
      if (!reader.ReadVarint(kMaxVarintBytes, value)) return std::nullopt;
      field.varint = value.value;
      continue;
    }
    size_t size = field.type == WireType::kFixed64 ? sizeof(uint64_t) : sizeof(uint32_t);
    if (field.type == WireType::kDelimited) {
      if (!reader.ReadVarint(kMaxShortVarintBytes, value)) return std::nullopt;
      size = value.value;
      field.bytes = {reader.position(), size};
    } else if (field.type != WireType::kFixed64 && field.type != WireType::kFixed32) {
      return std::nullopt;
    }
    if (size > end - reader.position()) return std::nullopt;
    reader.Take(size, nullptr);
  }
  return fields;
}

size_t BlockNumber(std::string_view field) {
  uint32_t number = 0;
  std::memcpy(&number, field.data(), std::min(field.size(), kTokenBytes));
  return number;
}

std::vector<Segment> SegmentsOf(absl::Span<const Segment> segments, const Block& block) {
  std::vector<Segment> pieces;
  size_t skip = block.offset;
  size_t left = block.size_bytes;
  for (const Segment& segment : segments) {
    if (left == 0) break;
    if (skip >= segment.size()) {
      skip -= segment.size();
      continue;
    }
    const Segment piece = segment.subspan(skip, left);
    pieces.push_back(piece);
    left -= piece.size();
    skip = 0;
  }
  return pieces;
}

}  // namespace normd::wire

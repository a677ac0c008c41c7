#include "server/rpc/http2/request_headers.h"

#include <algorithm>

#include "server/rpc/http2/grpc_headers.h"
#include "server/rpc/http2/http2_errors.h"

namespace normd::rpc::http2 {
namespace {

// RFC 9113, 6.5.2: the overhead that a field counts beside its name and value.
constexpr int64_t kFieldOverheadBytes = 32;
// A header block may expand to very many fields; each costs time until the stream is reset.
constexpr int64_t kHopelessFactor = 4;
// Metadata of a usual call: the user agent and a few keys of its own.
constexpr size_t kUsualTextBytes = 256;
constexpr size_t kUsualFields = 8;

int64_t BytesOf(size_t name_bytes, size_t value_bytes) {
  return static_cast<int64_t>(name_bytes + value_bytes) + kFieldOverheadBytes;
}

// Whether the field is gRPC's or HTTP's own, and not the caller's metadata.
bool IsProtocolField(std::string_view name) {
  return name == "te" || name == "grpc-accept-encoding" || name == "accept-encoding" || name == "content-length" ||
         name == "host" || name == "grpc-internal-encoding-request";
}

}  // namespace

bool RequestHeaders::Count(std::string_view name, std::string_view value) {
  bytes_ += BytesOf(name.size(), value.size());
  return bytes_ <= kHopelessFactor * max_bytes_;
}

void RequestHeaders::Add(std::string_view name, std::string_view value) {
  if (bytes_ > max_bytes_) return;
  if (name.starts_with(':')) {
    if (name == ":path") path_ = value;
    if (name == ":method") is_post_ = value == "POST";
  } else if (name == "content-type") {
    is_grpc_ = IsGrpcContentType(value);
  } else if (name == "grpc-timeout") {
    const bool again = timeout_.has_value();
    timeout_ = ParseTimeout(value);
    if (again || !timeout_.has_value()) malformed_ = name;
  } else if (name == "grpc-encoding") {
    encoding_ = value;
  } else if (!IsProtocolField(name)) {
    Keep(name, value);
  }
}

bool RequestHeaders::CountTrailer(std::string_view name, std::string_view value) {
  trailer_bytes_ += BytesOf(name.size(), value.size());
  return bytes_ + trailer_bytes_ <= max_bytes_;
}

void RequestHeaders::Drop() {
  std::string().swap(text_);  // assigning an empty string would keep the memory
  std::vector<Field>().swap(fields_);
}

void RequestHeaders::Keep(std::string_view name, std::string_view value) {
  if (name.ends_with("-bin")) return KeepBinary(name, value);
  if (fields_.empty()) {
    text_.reserve(kUsualTextBytes);
    fields_.reserve(kUsualFields);
  }
  const auto begin = static_cast<uint32_t>(text_.size());
  const auto key_bytes = static_cast<uint32_t>(name.size());
  text_.append(name).append(value);
  fields_.push_back({.key_begin = begin,
                     .key_bytes = key_bytes,
                     .value_begin = begin + key_bytes,
                     .value_bytes = static_cast<uint32_t>(value.size())});
}

void RequestHeaders::KeepBinary(std::string_view name, std::string_view value) {
  const auto key_begin = static_cast<uint32_t>(text_.size());
  text_.append(name);
  // Several values of a key may come joined by commas, which base64 does not have. Each is a field to those who read
  // the metadata, so each counts as one: a comma must not be a cheap way to make many.
  for (size_t begin = 0; begin <= value.size();) {
    const size_t comma = std::min(value.find(',', begin), value.size());
    if (begin > 0) bytes_ += BytesOf(name.size(), 0);
    if (bytes_ > max_bytes_) return;
    const bool is_empty_part = comma == begin && !value.empty();
    const std::optional<std::string> decoded = DecodeBinary(value.substr(begin, comma - begin));
    if (is_empty_part || !decoded.has_value()) {
      malformed_ = name;
      return;
    }
    fields_.push_back({.key_begin = key_begin,
                       .key_bytes = static_cast<uint32_t>(name.size()),
                       .value_begin = static_cast<uint32_t>(text_.size()),
                       .value_bytes = static_cast<uint32_t>(decoded->size())});
    text_.append(*decoded);
    begin = comma + 1;
  }
}

std::optional<RequestHeaders::Refusal> RequestHeaders::Judge() const {
  using enum TransportRefusal;
  if (bytes_ > max_bytes_) return Refusal{.reason = kTooLarge, .status = MetadataTooLargeError(bytes_, max_bytes_)};
  if (!is_post_) return Refusal{.reason = kNotGrpc, .http_status = 405, .status = absl::OkStatus()};
  if (!is_grpc_) return Refusal{.reason = kNotGrpc, .http_status = 415, .status = absl::OkStatus()};
  if (!malformed_.empty()) return Refusal{.reason = kMalformed, .status = MalformedHeaderError(malformed_)};
  if (!encoding_.empty() && encoding_ != "identity") {
    return Refusal{.reason = kCompressed, .status = CompressedError(encoding_)};
  }
  return std::nullopt;
}

void RequestHeaders::VisitMetadata(absl::FunctionRef<void(std::string_view key, std::string_view value)> visit) const {
  const std::string_view text = text_;
  for (const Field& field : fields_) {
    visit(text.substr(field.key_begin, field.key_bytes), text.substr(field.value_begin, field.value_bytes));
  }
}

}  // namespace normd::rpc::http2

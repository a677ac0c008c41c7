#include "client/cli/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kLengthBytes = 8;
constexpr absl::string_view kMetadata = "__metadata__";

// All dtypes of the format: the other tensors of a model are checked, too, even if nothing here reads their values.
struct DTypeInfo {
  absl::string_view name;
  int64_t bits;
};
constexpr DTypeInfo kDTypes[] = {{"F64", 64},    {"F32", 32},    {"F16", 16},        {"BF16", 16},       {"I64", 64},
                                 {"I32", 32},    {"I16", 16},    {"I8", 8},          {"U64", 64},        {"U32", 32},
                                 {"U16", 16},    {"U8", 8},      {"F8_E4M3", 8},     {"F8_E5M2", 8},     {"C64", 64},
                                 {"BOOL", 8},    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
                                 {"F6_E3M2", 6}, {"F4", 4}};

std::optional<int64_t> BitsOf(absl::string_view dtype) {
  const auto* found = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [dtype](const DTypeInfo& info) { return info.name == dtype; });
  if (found == std::end(kDTypes)) return std::nullopt;
  return found->bits;
}

// Text from a file, made safe to print.
std::string Shown(absl::string_view text) {
  constexpr size_t kMaxShown = 80;
  return absl::StrCat(absl::CHexEscape(text.substr(0, kMaxShown)), text.size() > kMaxShown ? "..." : "");
}

absl::Status Bad(absl::string_view field, absl::string_view value, absl::string_view limit) {
  return absl::InvalidArgumentError(absl::StrCat("safetensors: ", field, " is ", value, "; it must be ", limit));
}

struct Entry {
  std::string name, dtype;
  std::vector<int64_t> shape, offsets;
  std::set<std::string> given;
};

// Checks and stores the header while it is being read. No tree is built and the depth cannot grow, because the first
// part of another form ends the reading. nlohmann::json decides the names of the members.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  bool null() override {
    const bool is_metadata = depth_ == 1 && in_metadata_;  // as good as none
    return is_metadata || Skip() || Fail("null");
  }
  bool boolean(bool value) override { return Skip() || Fail(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Skip() || Fail(absl::StrCat(value)); }
  bool number_float(number_float_t, const string_t& text) override { return Skip() || Fail(Shown(text)); }
  bool binary(binary_t&) override { return Fail("binary"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (Skip()) return true;
    if (numbers_ == nullptr || value > static_cast<uint64_t>(INT64_MAX)) return Fail(absl::StrCat(value));
    numbers_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (Skip()) return true;
    if (depth_ == 2 && in_metadata_) {
      metadata.emplace(key_, std::move(value));
      return true;
    }
    if (depth_ != 2 || key_ != "dtype") return Fail(absl::StrCat("\"", Shown(value), "\""));
    entries.back().dtype = std::move(value);
    return true;
  }
  bool start_object(size_t) override {
    if (is_skipped_) return SkipDeeper();
    if (depth_ > 1) return Fail("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (is_skipped_) return SkipEnd();
    return --depth_ == 1 ? EndEntry() : true;
  }
  bool start_array(size_t) override {
    if (is_skipped_) return SkipDeeper();
    const bool wanted = depth_ == 2 && !in_metadata_ && numbers_ == nullptr && key_ != "dtype";
    if (!wanted) return Fail("an array");
    numbers_ = key_ == "shape" ? &entries.back().shape : &entries.back().offsets;
    return true;
  }
  bool end_array() override {
    if (is_skipped_) return SkipEnd();
    numbers_ = nullptr;
    return true;
  }
  bool key(string_t& key) override {
    if (is_skipped_) return true;
    return depth_ == 1 ? StartEntry(key) : StartMember(key);
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    status = Bad("the header", absl::StrCat("no JSON at byte ", position), "a JSON object");
    return false;
  }

  // The results. They are complete if `sax_parse` returned true; otherwise `status` holds the reason.
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  absl::Status status;

 private:
  // True for a value, or a part of one, of a member that the format does not know: it may have any form.
  bool Skip() {
    if (!is_skipped_) return false;
    is_skipped_ = skipped_depth_ > 0;
    return true;
  }
  bool SkipDeeper() {
    ++skipped_depth_;
    return true;
  }
  bool SkipEnd() {
    --skipped_depth_;
    return Skip();
  }
  std::string Place() const {
    if (depth_ == 0) return "the header";
    return depth_ == 1 ? Shown(name_) : absl::StrCat(Shown(name_), ".", Shown(key_));
  }
  absl::string_view Wanted() const {
    if (depth_ < 2) return "an object";
    if (in_metadata_) return "a string";
    return key_ == "dtype" ? "a string" : "an array of whole numbers from 0 to 2^63 - 1";
  }
  bool Fail(absl::string_view found) {
    status = Bad(Place(), found, Wanted());
    return false;
  }
  bool StartEntry(const std::string& name) {
    name_ = name;
    in_metadata_ = name == kMetadata;
    if (!names_.insert(name).second) {
      status = Bad(Shown(name), "named twice", "named once");
      return false;
    }
    if (!in_metadata_) entries.push_back({name, {}, {}, {}, {}});
    return true;
  }
  bool StartMember(const std::string& key) {
    key_ = key;
    const bool known = in_metadata_ || key == "dtype" || key == "shape" || key == "data_offsets";
    const bool first = in_metadata_ ? metadata.count(key) == 0 : known && entries.back().given.insert(key).second;
    is_skipped_ = !known;
    if (first || !known) return true;
    status = Bad(Place(), "named twice", "named once");
    return false;
  }
  bool EndEntry() {
    if (in_metadata_ || entries.back().given.size() == 3) return true;
    const std::string given = absl::StrJoin(entries.back().given, " and ");
    status = Bad(Shown(name_), given.empty() ? "given none of them" : absl::StrCat("given ", given, " alone"),
                 "given dtype, shape and data_offsets");
    return false;
  }

  int depth_ = 0;  // of objects: 1 in the header, 2 in an entry
  std::string name_, key_;
  bool in_metadata_ = false;
  bool is_skipped_ = false;
  int skipped_depth_ = 0;  // of objects and arrays inside the value that is skipped
  std::set<std::string> names_;
  std::vector<int64_t>* numbers_ = nullptr;  // receives the array that is being read
};

// The header's text. The data follows it.
absl::StatusOr<absl::string_view> FindHeader(absl::string_view file) {
  if (file.size() < kLengthBytes) {
    return Bad("the file", absl::StrCat(file.size(), " bytes"), "at least 8, the header's length");
  }
  uint64_t length;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    return Bad("the header's length", absl::StrCat(length), absl::StrCat("at most ", kMaxHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    return Bad("the header's length", absl::StrCat(length),
               absl::StrCat("at most ", file.size() - kLengthBytes, ", what the file holds"));
  }
  const absl::string_view header = file.substr(kLengthBytes, length);
  if (header.empty() || header.front() != '{') {
    return Bad("the header's first byte", header.empty() ? "missing" : Shown(header.substr(0, 1)), "{");
  }
  // nlohmann::json takes a zero byte for the end of the text.
  if (const size_t at = header.find('\0'); at != absl::string_view::npos) {
    return Bad("the header", absl::StrCat("no JSON at byte ", at + 1), "a JSON object");
  }
  return header;
}

// The number of bytes that dtype and shape need.
absl::StatusOr<int64_t> NeededBytes(absl::string_view name, absl::string_view dtype,
                                    const std::vector<int64_t>& shape) {
  const std::optional<int64_t> item_bits = BitsOf(dtype);
  if (!item_bits.has_value()) {
    return Bad(absl::StrCat(Shown(name), ".dtype"), Shown(dtype),
               absl::StrCat("one of ", absl::StrJoin(kDTypes, " ", [](std::string* out, const DTypeInfo& info) {
                              out->append(info.name.data(), info.name.size());
                            })));
  }
  int64_t bits = *item_bits;
  bool empty = false;
  for (const int64_t extent : shape) {
    empty = empty || extent == 0;
    // An extent of 0 must not hide an overflow of the others.
    if (extent < 0 || __builtin_mul_overflow(bits, std::max<int64_t>(extent, 1), &bits)) {
      return Bad(absl::StrCat(Shown(name), ".shape"), absl::StrCat("[", Shown(absl::StrJoin(shape, ", ")), "]"),
                 "extents whose product fits 64 bits");
    }
  }
  if (empty) return 0;
  if (bits % 8 == 0) return bits / 8;
  return Bad(absl::StrCat(Shown(name), ".shape"), absl::StrCat("[", Shown(absl::StrJoin(shape, ", ")), "]"),
             absl::StrCat("of whole bytes, of ", dtype, " as well"));
}

absl::Status CheckEntry(const Entry& entry, size_t data_bytes) {
  const std::string field = absl::StrCat(Shown(entry.name), ".data_offsets");
  const std::string value = absl::StrCat("[", Shown(absl::StrJoin(entry.offsets, ", ")), "]");
  if (entry.offsets.size() != 2) return Bad(field, value, "2 numbers, begin and end");
  const auto [begin, end] = std::pair(entry.offsets[0], entry.offsets[1]);
  if (begin > end || static_cast<uint64_t>(end) > data_bytes) {
    return Bad(field, value, absl::StrCat("rising and at most ", data_bytes, ", the bytes of data"));
  }
  const absl::StatusOr<int64_t> needed = NeededBytes(entry.name, entry.dtype, entry.shape);
  if (!needed.ok()) return needed.status();
  if (end - begin == *needed) return absl::OkStatus();
  return Bad(field, absl::StrCat(end - begin, " bytes"),
             absl::StrCat(*needed, ", as ", entry.dtype, " [", Shown(absl::StrJoin(entry.shape, ", ")), "] needs"));
}

// An error unless the tensors follow each other without gaps to the end of the file. REQUIRES: CheckEntry holds for
// each.
absl::Status CheckOrder(std::vector<Entry>& entries, size_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  int64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.offsets[0] != at) {
      return Bad(absl::StrCat(Shown(entry.name), ".data_offsets"), absl::StrCat("from ", entry.offsets[0]),
                 absl::StrCat("from ", at, ", where the tensor before it ends"));
    }
    at = entry.offsets[1];
  }
  if (static_cast<uint64_t>(at) == data_bytes) return absl::OkStatus();
  return Bad("the data", absl::StrCat(data_bytes, " bytes"), absl::StrCat(at, ", where the last tensor ends"));
}

// True if `text` is UTF-8. By default, dump() throws on other text.
bool IsUtf8(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace) ==
         Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore);
}

absl::Status CheckWritable(const Safetensors& file) {
  for (const auto& [name, tensor] : file.tensors) {
    if (!IsUtf8(name) || name == kMetadata) return Bad("a tensor's name", Shown(name), "UTF-8, and not __metadata__");
    const absl::StatusOr<int64_t> needed = NeededBytes(name, tensor.dtype, tensor.shape);
    if (!needed.ok()) return needed.status();
    if (static_cast<uint64_t>(*needed) != tensor.data.size()) {
      return Bad(Shown(name), absl::StrCat(tensor.data.size(), " bytes"), absl::StrCat(*needed));
    }
  }
  for (const auto& [key, value] : file.metadata) {
    if (!IsUtf8(key) || !IsUtf8(value)) return Bad(absl::StrCat("__metadata__.", Shown(key)), "no UTF-8", "UTF-8");
  }
  return absl::OkStatus();
}

}  // namespace

int64_t SafetensorsTensor::elements() const {
  const std::optional<int64_t> bits = BitsOf(dtype);
  return bits.has_value() ? static_cast<int64_t>(data.size()) * 8 / *bits : 0;
}

absl::StatusOr<Safetensors> ParseSafetensors(absl::string_view file) {
  const absl::StatusOr<absl::string_view> header = FindHeader(file);
  if (!header.ok()) return header.status();
  HeaderReader reader;
  if (!Json::sax_parse(header->begin(), header->end(), &reader)) return reader.status;
  const absl::string_view data = file.substr(kLengthBytes + header->size());
  for (const Entry& entry : reader.entries) {
    if (absl::Status status = CheckEntry(entry, data.size()); !status.ok()) return status;
  }
  if (absl::Status status = CheckOrder(reader.entries, data.size()); !status.ok()) return status;
  Safetensors out;
  out.metadata = std::move(reader.metadata);
  for (Entry& entry : reader.entries) {
    const auto begin = static_cast<size_t>(entry.offsets[0]);
    const absl::string_view bytes = data.substr(begin, static_cast<size_t>(entry.offsets[1]) - begin);
    out.tensors[std::move(entry.name)] = {std::move(entry.dtype), std::move(entry.shape), bytes};
  }
  return out;
}

absl::StatusOr<std::string> WriteSafetensors(const Safetensors& file) {
  if (absl::Status status = CheckWritable(file); !status.ok()) return status;
  std::vector<std::pair<absl::string_view, const SafetensorsTensor*>> order;
  for (const auto& [name, tensor] : file.tensors) order.emplace_back(name, &tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return BitsOf(a.second->dtype) > BitsOf(b.second->dtype); });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!file.metadata.empty()) header[std::string(kMetadata)] = file.metadata;
  size_t end = 0;
  for (const auto& [name, tensor] : order) {
    const size_t begin = end;
    end += tensor->data.size();
    header[std::string(name)] = {{"dtype", tensor->dtype}, {"shape", tensor->shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string out(reinterpret_cast<const char*>(&length), kLengthBytes);
  out.reserve(kLengthBytes + text.size() + end);
  out += text;
  for (const auto& [name, tensor] : order) out.append(tensor->data.data(), tensor->data.size());
  return out;
}

absl::string_view SafetensorsDType(DType dtype) {
  switch (dtype) {
    case v1::DTYPE_F64:
      return "F64";
    case v1::DTYPE_F32:
      return "F32";
    case v1::DTYPE_F16:
      return "F16";
    case v1::DTYPE_BF16:
      return "BF16";
    default:
      return "";
  }
}

absl::StatusOr<Tensor> ToFloatTensor(absl::string_view name, const SafetensorsTensor& tensor) {
  for (const DType dtype : {v1::DTYPE_F64, v1::DTYPE_F32, v1::DTYPE_F16, v1::DTYPE_BF16}) {
    if (tensor.dtype == SafetensorsDType(dtype)) return Tensor{dtype, tensor.shape, std::string(tensor.data)};
  }
  return Bad(absl::StrCat(Shown(name), ".dtype"), tensor.dtype, "F64, F32, F16 or BF16");
}

}  // namespace normd::client

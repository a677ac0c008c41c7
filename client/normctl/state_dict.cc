#include "client/normctl/state_dict.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/program.h"
#include "client/cli/table.h"
#include "client/cli/tensor_file.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

constexpr absl::string_view kNumBatches = "num_batches_tracked";

absl::Status BadStateDict(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, " ", what));
}

// For text from a file, which is made safe to print.
absl::Status BadMetadata(absl::string_view key, absl::string_view text, absl::string_view wanted) {
  constexpr size_t kShownBytes = 80;
  return BadStateDict(absl::StrCat("__metadata__.normd.", key),
                      absl::StrCat("is ", text.empty() ? "empty" : absl::CHexEscape(text.substr(0, kShownBytes)),
                                   text.size() > kShownBytes ? "..." : "", "; it must be ", wanted));
}

// The place of a state_dict's tensor in a session.
struct Place {
  absl::string_view name;  // PyTorch's
  // What others call it: Keras and TensorFlow, Flax, MXNet, Haiku, Paddle. Empty where there are fewer.
  absl::string_view others[4];
  bool is_statistic;
  v1::Tensor* (*mutable_tensor)(v1::Session&);
  const v1::Tensor* (*tensor)(const v1::Session&);  // returns nullptr if absent
};

constexpr Place kPlaces[] = {
    {"weight",
     {"gamma", "scale"},
     false,
     [](v1::Session& s) { return s.mutable_parameters()->mutable_weight(); },
     [](const v1::Session& s) { return s.parameters().has_weight() ? &s.parameters().weight() : nullptr; }},
    {"bias",
     {"beta", "offset"},
     false,
     [](v1::Session& s) { return s.mutable_parameters()->mutable_bias(); },
     [](const v1::Session& s) { return s.parameters().has_bias() ? &s.parameters().bias() : nullptr; }},
    {"running_mean",
     {"moving_mean", "mean", "_mean"},
     true,
     [](v1::Session& s) { return s.mutable_state()->mutable_mean(); },
     [](const v1::Session& s) { return s.state().has_mean() ? &s.state().mean() : nullptr; }},
    {"running_var",
     {"moving_variance", "moving_var", "var", "_variance"},
     true,
     [](v1::Session& s) { return s.mutable_state()->mutable_var(); },
     [](const v1::Session& s) { return s.state().has_var() ? &s.state().var() : nullptr; }},
    {"running_phi",
     {},
     true,
     [](v1::Session& s) { return s.mutable_state()->mutable_phi(); },
     [](const v1::Session& s) { return s.state().has_phi() ? &s.state().phi() : nullptr; }},
};

// The number of values. Never negative, whatever a server sends.
int64_t Elements(const v1::Tensor& tensor) {
  const int64_t bytes = ElementBytes(tensor.dtype());
  return bytes == 0 ? 0 : static_cast<int64_t>(tensor.data().size()) / bytes;
}

// ---- to a file

absl::StatusOr<std::string> SpecJson(const v1::NormSpec& spec) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(spec, &text, options).ok()) {
    return absl::InternalError("the session's spec cannot be written as JSON");
  }
  return text;
}

absl::StatusOr<std::map<std::string, std::string>> MetadataOf(const v1::Session& session) {
  const absl::StatusOr<std::string> spec = SpecJson(session.spec());
  if (!spec.ok()) return spec.status();
  std::map<std::string, std::string> out = {{"format", "pt"},
                                            {"normd.version", ClientVersion()},
                                            {"normd.numerics", session.numerics()},
                                            {"normd.spec", *spec},
                                            {"normd.num_channels", absl::StrCat(session.num_channels())}};
  if (session.default_dtype() != v1::DTYPE_UNSPECIFIED) {
    out["normd.default_dtype"] = std::string(DTypeName(session.default_dtype()));
  }
  Json labels = Json::object();
  for (const auto& [key, value] : session.labels()) labels[key] = value;
  out["normd.labels"] = labels.dump(-1, ' ', false, Json::error_handler_t::replace);
  return out;
}

// ---- from a file

absl::StatusOr<v1::Tensor> FloatsFrom(const std::string& name, const SafetensorsTensor& tensor, bool is_statistic) {
  absl::StatusOr<Tensor> floats = ToFloatTensor(name, tensor);
  if (!floats.ok()) return floats.status();
  // The contract has no rank 0: a scalar of torch becomes a vector of one element.
  if (floats->shape.empty()) floats->shape = {1};
  if (!is_statistic) return (*std::move(floats)).ToProto();
  const int64_t elements = floats->elements();
  const bool is_vector = std::any_of(floats->shape.begin(), floats->shape.end(),
                                     [elements](int64_t extent) { return extent == elements; });
  if (!is_vector)
    return BadStateDict(name,
                        absl::StrCat("has shape ", ShapeText(floats->shape), "; it must have one value a channel"));
  if (floats->dtype == v1::DTYPE_F64) {
    return Tensor{v1::DTYPE_F64, {elements}, std::move(floats->data)}.ToProto();
  }
  return Tensor::F64({elements}, floats->ToDoubles()).ToProto();
}

absl::StatusOr<uint64_t> BatchesFrom(const std::string& name, const SafetensorsTensor& tensor) {
  if (tensor.dtype != "I64") return BadStateDict(name, absl::StrCat("has dtype ", tensor.dtype, "; it must be I64"));
  if (tensor.elements() != 1)
    return BadStateDict(name, absl::StrCat("has ", tensor.elements(), " values; it must have 1"));
  int64_t value;
  std::memcpy(&value, tensor.data.data(), sizeof(value));
  if (value < 0) return BadStateDict(name, absl::StrCat("is ", value, "; it must be at least 0"));
  return static_cast<uint64_t>(value);
}

absl::Status LabelsFrom(const std::string& text, v1::Session& session) {
  const Json labels = Json::parse(text, nullptr, false);
  const auto is_string = [](const Json& value) { return value.is_string(); };
  if (!labels.is_object() || !std::all_of(labels.begin(), labels.end(), is_string)) {
    return BadMetadata("labels", text, "a JSON object of strings");
  }
  for (const auto& [key, value] : labels.items()) (*session.mutable_labels())[key] = value.get<std::string>();
  return absl::OkStatus();
}

// Reads what the exporting program wrote about the session. Files of other programs have no such metadata.
absl::Status MetadataFrom(const std::map<std::string, std::string>& metadata, v1::Session& session) {
  if (const auto it = metadata.find("normd.spec"); it != metadata.end()) {
    const auto parsed = google::protobuf::util::JsonStringToMessage(it->second, session.mutable_spec());
    if (!parsed.ok())
      return BadStateDict("__metadata__.normd.spec", absl::StrCat("is no NormSpec: ", parsed.message().ToString()));
  }
  if (const auto it = metadata.find("normd.num_channels"); it != metadata.end()) {
    int64_t channels;
    if (!absl::SimpleAtoi(it->second, &channels) || channels < 0) {
      return BadMetadata("num_channels", it->second, "a whole number, at least 0");
    }
    session.set_num_channels(channels);
  }
  if (const auto it = metadata.find("normd.default_dtype"); it != metadata.end()) {
    const absl::StatusOr<DType> dtype = ParseDType(it->second);
    if (!dtype.ok()) return BadMetadata("default_dtype", it->second, kDTypeNames);
    session.set_default_dtype(*dtype);
  }
  const auto labels = metadata.find("normd.labels");
  return labels == metadata.end() ? absl::OkStatus() : LabelsFrom(labels->second, session);
}

absl::Status NothingFound(const Safetensors& file, absl::Span<const std::string> prefixes) {
  if (file.tensors.empty()) {
    return absl::InvalidArgumentError("no weight, running_mean or the like: the file has no tensors");
  }
  constexpr size_t kShown = 8;
  std::vector<std::string> names;
  for (const auto& entry : file.tensors) {
    if (names.size() < kShown) names.push_back(absl::Utf8SafeCHexEscape(entry.first));
  }
  const std::string prefix = prefixes.empty() ? "" : prefixes[0];
  return absl::InvalidArgumentError(absl::StrCat("no ", prefix, "weight, ", prefix, "running_mean or the like; it has ",
                                                 absl::StrJoin(names, ", "),
                                                 file.tensors.size() > kShown ? ", ..." : "", ": --prefix chooses"));
}

using NamedTensor = std::pair<const std::string, SafetensorsTensor>;

// The tensor of one of `names` behind one of the prefixes, nullptr if there is none. A variable of TensorFlow ends in
// ":0". INVALID_ARGUMENT if several tensors claim the place.
absl::StatusOr<const NamedTensor*> FindTensor(const Safetensors& file, absl::Span<const std::string> prefixes,
                                              absl::Span<const absl::string_view> names) {
  const NamedTensor* found = nullptr;
  for (const std::string& prefix : prefixes) {
    for (const absl::string_view name : names) {
      for (const absl::string_view end : {"", ":0"}) {
        const auto it = name.empty() ? file.tensors.end() : file.tensors.find(absl::StrCat(prefix, name, end));
        if (it == file.tensors.end() || &*it == found) continue;
        if (found != nullptr) {
          return BadStateDict(found->first, absl::StrCat("and ", it->first, " are both the layer's ", names[0],
                                                         "; it must have one: give the file one of them"));
        }
        found = &*it;
      }
    }
  }
  return found;
}

std::string WithoutPrefix(absl::string_view name, absl::Span<const std::string> prefixes) {
  for (const std::string& prefix : prefixes) {
    if (absl::ConsumePrefix(&name, prefix)) break;
  }
  return std::string(name);
}

// An error unless all tensors have as many values as the first: one a channel (or a group, or an element).
// `names` has what the file calls the tensor of each place, behind its prefix.
absl::Status CheckLengths(const v1::Session& session, const std::map<absl::string_view, std::string>& names) {
  const Place* first = nullptr;
  for (const Place& place : kPlaces) {
    const v1::Tensor* tensor = place.tensor(session);
    if (tensor == nullptr) continue;
    if (first == nullptr) first = &place;
    const int64_t want = Elements(*first->tensor(session));
    if (Elements(*tensor) == want) continue;
    return BadStateDict(names.at(place.name),
                        absl::StrCat("has ", Elements(*tensor), " values, but ", names.at(first->name), " has ", want));
  }
  if (session.state().has_mean() == session.state().has_var()) return absl::OkStatus();
  return session.state().has_mean()
             ? BadStateDict("running_var", absl::StrCat("is missing, but there is ", names.at("running_mean")))
             : BadStateDict("running_mean", absl::StrCat("is missing, but there is ", names.at("running_var")));
}

bool HasChannels(const v1::NormSpec& spec) {
  return spec.has_batch_norm() || spec.has_instance_norm() || spec.has_group_norm() || spec.has_power_norm();
}

}  // namespace

absl::StatusOr<std::string> ToStateDict(const v1::Session& session, absl::string_view prefix, bool f32_statistics) {
  absl::StatusOr<std::map<std::string, std::string>> metadata = MetadataOf(session);
  if (!metadata.ok()) return metadata.status();
  Safetensors file;
  file.metadata = *std::move(metadata);
  std::vector<std::string> rounded;
  rounded.reserve(std::size(kPlaces));  // `file` borrows the strings
  for (const Place& place : kPlaces) {
    const v1::Tensor* proto = place.tensor(session);
    if (proto == nullptr) continue;
    SafetensorsTensor& tensor = file.tensors[absl::StrCat(prefix, place.name)];
    tensor = {std::string(SafetensorsDType(proto->dtype())), {proto->shape().begin(), proto->shape().end()}, {}};
    tensor.data = proto->data();
    if (!place.is_statistic || !f32_statistics) continue;
    const absl::StatusOr<Tensor> wide = Tensor::FromProto(*proto);
    if (!wide.ok()) return wide.status();
    rounded.push_back(Tensor::Rounded(v1::DTYPE_F32, wide->shape, wide->ToDoubles()).data);
    tensor.dtype = "F32";
    tensor.data = rounded.back();
  }
  const uint64_t batches = session.state().num_batches();
  if (session.has_state()) {
    if (batches > static_cast<uint64_t>(INT64_MAX)) {
      return BadStateDict(kNumBatches,
                          absl::StrCat("is ", batches, "; it must be at most ", INT64_MAX, ", the largest I64"));
    }
    file.tensors[absl::StrCat(prefix, kNumBatches)] = {
        "I64", {}, absl::string_view(reinterpret_cast<const char*>(&batches), sizeof(batches))};
  }
  return WriteSafetensors(file);
}

absl::StatusOr<v1::Session> FromStateDict(const Safetensors& file, absl::Span<const std::string> prefixes) {
  v1::Session session;
  if (absl::Status status = MetadataFrom(file.metadata, session); !status.ok()) return status;
  std::map<absl::string_view, std::string> names;
  for (const Place& place : kPlaces) {
    std::vector<absl::string_view> called = {place.name};
    called.insert(called.end(), std::begin(place.others), std::end(place.others));
    const absl::StatusOr<const NamedTensor*> found = FindTensor(file, prefixes, called);
    if (!found.ok()) return found.status();
    if (*found == nullptr) continue;
    names[place.name] = WithoutPrefix((*found)->first, prefixes);
    absl::StatusOr<v1::Tensor> tensor = FloatsFrom((*found)->first, (*found)->second, place.is_statistic);
    if (!tensor.ok()) return tensor.status();
    *place.mutable_tensor(session) = *std::move(tensor);
  }
  const absl::StatusOr<const NamedTensor*> count = FindTensor(file, prefixes, {kNumBatches});
  if (!count.ok()) return count.status();
  if (*count != nullptr) {
    const absl::StatusOr<uint64_t> batches = BatchesFrom((*count)->first, (*count)->second);
    if (!batches.ok()) return batches.status();
    if (!session.has_state()) return BadStateDict((*count)->first, "has no running statistics beside it");
    session.mutable_state()->set_num_batches(*batches);
  }
  // A layer without parameters and state is a file with metadata alone.
  if (names.empty() && !(file.tensors.empty() && session.has_spec())) return NothingFound(file, prefixes);
  if (absl::Status status = CheckLengths(session, names); !status.ok()) return status;
  return session;
}

absl::Status ResolveChannels(v1::Session& session) {
  if (!HasChannels(session.spec())) {
    session.set_num_channels(0);
    return absl::OkStatus();
  }
  if (session.spec().group_norm().affine_per_group()) return absl::OkStatus();
  for (const Place& place : kPlaces) {
    const v1::Tensor* tensor = place.tensor(session);
    if (tensor == nullptr) continue;
    if (session.num_channels() == 0) session.set_num_channels(Elements(*tensor));
    if (session.num_channels() == Elements(*tensor)) return absl::OkStatus();
    return BadStateDict(place.name,
                        absl::StrCat("has ", Elements(*tensor), " values, but __metadata__.normd.num_channels is ",
                                     session.num_channels()));
  }
  return absl::OkStatus();
}

}  // namespace normd::client

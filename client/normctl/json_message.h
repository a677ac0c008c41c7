// Messages of the contract as JSON for programs, and tensors back from it. Tensors are {"dtype", "shape", "values"}.
// Between the commands and their output. Pure functions.
#ifndef NORMD_CLIENT_NORMCTL_JSON_MESSAGE_H_
#define NORMD_CLIENT_NORMCTL_JSON_MESSAGE_H_

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "normd/v1/tensor.pb.h"

namespace normd::client {

// Protobuf's JSON form with the .proto's field names. Tensors become {"dtype", "shape", "values"}, the values in full.
nlohmann::json MessageJson(const google::protobuf::Message& message);

// The number, or "NaN", "Infinity", "-Infinity": JSON has none of them.
nlohmann::json NumberJson(double value);

// The tensor that MessageJson showed, bit for bit but for the payload of NaNs. INVALID_ARGUMENT, naming `field`, for
// anything else.
absl::StatusOr<v1::Tensor> TensorFromJson(absl::string_view field, const nlohmann::json& json);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_JSON_MESSAGE_H_

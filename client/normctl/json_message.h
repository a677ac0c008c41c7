// Converts messages of the contract to JSON for programs, and tensors back. Tensors are {"dtype", "shape", "values"}.
// In the path: between the commands and their output. Pure functions.
#ifndef NORMD_CLIENT_NORMCTL_JSON_MESSAGE_H_
#define NORMD_CLIENT_NORMCTL_JSON_MESSAGE_H_

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "normd/v1/tensor.pb.h"

namespace normd::client {

// The one JSON form of all commands: the field names of the .proto; enums as lower-case words without their prefix
// ("cpu", "inside_sqrt"); numbers as numbers, 64-bit ones too, except those of NumberJson; times in RFC 3339, durations
// as "1.5s"; tensors as {"dtype", "shape", "values"} with all values. Left out are fields with presence that are not
// set, and enums at their zero value, which stands for the documented default.
nlohmann::json MessageJson(const google::protobuf::Message& message);

// The number, or "NaN", "Infinity" or "-Infinity", which JSON numbers cannot express.
nlohmann::json NumberJson(double value);

// The tensor that MessageJson wrote, bit for bit except for the payload of NaNs. INVALID_ARGUMENT, naming `field`, for
// any other JSON.
absl::StatusOr<v1::Tensor> TensorFromJson(absl::string_view field, const nlohmann::json& json);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_JSON_MESSAGE_H_

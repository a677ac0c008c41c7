// Messages of the contract as JSON and as lines for people. Tensors are shown by dtype, shape and first values.
#ifndef NORMD_CLIENT_NORMCTL_JSON_MESSAGE_H_
#define NORMD_CLIENT_NORMCTL_JSON_MESSAGE_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "google/protobuf/message.h"

namespace normd::client {

// Protobuf's JSON form with the .proto's field names. Tensors become {"dtype", "shape", "values"}, the values in full.
nlohmann::json MessageJson(const google::protobuf::Message& message);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_JSON_MESSAGE_H_

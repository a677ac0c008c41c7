// Shows errors: the server refuses two calls, and each refusal names field, value, limit and reason.
//   errors 127.0.0.1:8001
#include <normd/client.h>

#include <iostream>

namespace {

// Prints a status. Returns true if the call was refused with the expected code.
bool Print(const absl::Status& status, absl::StatusCode expected) {
  std::cout << status.message() << "\n  code: " << absl::StatusCodeToString(status.code()) << "\n";
  // nullopt for errors that reached no server, such as UNAVAILABLE.
  if (const std::optional<normd::client::ErrorInfo> info = normd::client::GetErrorInfo(status)) {
    if (!info->field.empty()) std::cout << "  field: " << info->field << "\n";
    if (!info->value.empty()) std::cout << "  value: " << info->value << "\n";
    if (!info->limit.empty()) std::cout << "  limit: " << info->limit << "\n";
    if (!info->resource.empty()) std::cout << "  resource: " << info->resource << "\n";
    std::cout << "  reason: " << info->reason << "\n";  // stable: programs compare the reason
  }
  return status.code() == expected;
}

}  // namespace

int main(int argc, char** argv) {
  const auto client = normd::Client::Connect(argc > 1 ? argv[1] : "127.0.0.1:8001");
  if (!client.ok()) {
    std::cerr << normd::client::ToText(client.status()) << "\n";
    return 1;
  }
  const auto x = normd::client::Tensor::F32({1, 4}, {1, 2, 3, 4});

  normd::v1::NormSpec negative_eps;
  negative_eps.mutable_rms_norm()->set_eps(-1);
  const absl::Status refused = (*client)->NormalizeTensor(negative_eps, x).status();

  normd::v1::NormalizeRequest unknown_session;
  unknown_session.set_session("sessions/nobody");
  *unknown_session.mutable_x() = x.ToProto();
  const absl::Status not_found = (*client)->Normalize(unknown_session).status();

  const bool first = Print(refused, absl::StatusCode::kInvalidArgument);
  return Print(not_found, absl::StatusCode::kNotFound) && first ? 0 : 1;
}

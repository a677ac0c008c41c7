// Keeps x and y in memory that this process shares with the server, so that neither is sent or copied.
//   shared_memory unix:/run/normd/normd.sock
// A server that is reached over TCP shares no memory; the program then says so and sends x.
#include <normd/client.h>

#include <iostream>

using normd::client::SharedBlock;
using normd::client::Tensor;

namespace {

constexpr int64_t kRows = 256, kColumns = 1024;
constexpr int64_t kBytes = kRows * kColumns * static_cast<int64_t>(sizeof(float));

void Fill(float* x) {
  for (int64_t i = 0; i < kRows * kColumns; ++i) x[i] = i % 2 == 0 ? 0 : 2000;
}

absl::Status Run(normd::Client& client) {
  normd::v1::NormalizeRequest request;
  request.mutable_spec()->mutable_layer_norm()->add_normalized_shape(kColumns);

  // The blocks may serve any number of requests, one after the other.
  const absl::StatusOr<SharedBlock> x = client.AllocateShared(kBytes);
  const absl::StatusOr<SharedBlock> y = client.AllocateShared(kBytes);
  const bool shared = x.ok() && y.ok();
  if (shared) {
    Fill(reinterpret_cast<float*>(x->data()));
    request.mutable_x()->set_dtype(normd::v1::DTYPE_F32);
    request.mutable_x()->add_shape(kRows);
    request.mutable_x()->add_shape(kColumns);
    normd::client::SetShared(*x, request.mutable_x());
    normd::v1::OutputRequest* output = request.add_outputs();
    output->set_kind(normd::v1::OUTPUT_KIND_Y);
    normd::client::SetShared(*y, output);
  } else {
    std::cout << "no shared memory: " << (x.ok() ? y.status() : x.status()).message() << "\n";
    std::vector<float> values(kRows * kColumns);
    Fill(values.data());
    *request.mutable_x() = Tensor::F32({kRows, kColumns}, values).ToProto();
  }

  const absl::StatusOr<normd::v1::NormalizeResponse> response = client.Normalize(request);
  if (!response.ok()) return response.status();
  const std::string& sent_back = response->outputs(0).tensor().data();  // empty if y is shared
  const auto* values = reinterpret_cast<const float*>(shared ? static_cast<const void*>(y->data()) : sent_back.data());
  std::cout << "y " << values[0] << " " << values[1] << ", " << sent_back.size() << " bytes of it sent back\n";
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const auto client = normd::Client::Connect(argc > 1 ? argv[1] : "127.0.0.1:8001");
  const absl::Status status = client.ok() ? Run(**client) : client.status();
  if (!status.ok()) std::cerr << normd::client::ToText(status) << "\n";
  return status.ok() ? 0 : 1;
}

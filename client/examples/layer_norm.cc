// The shortest whole program: connects, normalises the rows of a matrix, and prints them.
//   layer_norm 127.0.0.1:8001
#include <normd/client.h>

#include <iostream>

int main(int argc, char** argv) {
  // Connect sends nothing yet: an unreachable server is an error of the first call.
  const auto client = normd::Client::Connect(argc > 1 ? argv[1] : "127.0.0.1:8001");
  if (!client.ok()) {
    std::cerr << normd::client::ToText(client.status()) << "\n";
    return 1;
  }

  normd::v1::NormSpec spec;
  spec.mutable_layer_norm()->add_normalized_shape(4);  // statistics over the last axis; eps is 1e-5
  const auto x = normd::client::Tensor::F32({2, 4}, {1, 2, 3, 4, 40, 30, 20, 10});

  const absl::StatusOr<normd::client::Tensor> y = (*client)->NormalizeTensor(spec, x);
  if (!y.ok()) {
    std::cerr << normd::client::ToText(y.status()) << "\n";
    return 1;
  }
  const std::vector<float> values = y->ToFloats();
  for (size_t i = 0; i < values.size(); ++i) std::cout << values[i] << (i % 4 == 3 ? "\n" : " ");
}

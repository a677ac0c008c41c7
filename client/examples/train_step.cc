// A BatchNorm session, which the server keeps: created, trained for three steps, read, and used for inference.
//   train_step 127.0.0.1:8001
#include <normd/client.h>

#include <iostream>

using normd::client::Tensor;

namespace {

void Print(const char* name, const absl::StatusOr<Tensor>& tensor) {
  std::cout << name;
  if (!tensor.ok()) std::cout << " " << normd::client::ToText(tensor.status());
  if (tensor.ok()) {
    for (const double value : tensor->ToDoubles()) std::cout << " " << value;
  }
  std::cout << "\n";
}

absl::Status Run(normd::Client& client) {
  normd::v1::CreateSessionRequest create;  // without a session_id, the server chooses one
  create.mutable_session()->set_num_channels(2);
  create.mutable_session()->set_default_dtype(normd::v1::DTYPE_F32);
  normd::v1::BatchNorm* batch_norm = create.mutable_session()->mutable_spec()->mutable_batch_norm();
  batch_norm->set_layout(normd::v1::LAYOUT_CHANNELS_LAST);
  batch_norm->mutable_running()->set_cumulative(true);  // averages all batches, instead of using a momentum
  const absl::StatusOr<normd::v1::Session> session = client.CreateSession(create);
  if (!session.ok()) return session.status();

  for (const int step : {1, 2, 3, 3}) {  // the last 3 stands for a step whose reply was lost
    const auto batch = static_cast<float>(step);
    normd::v1::NormalizeRequest request;
    request.set_session(session->name());
    request.set_mode(normd::v1::MODE_TRAINING);
    // The StepId makes a step safe to send again: the server applies each sequence number of a client once.
    request.mutable_step()->set_client_id("worker-0");
    request.mutable_step()->set_sequence(step);
    *request.mutable_x() = Tensor::F32({2, 2}, {batch, 10 * batch, batch + 2, 10 * batch + 20}).ToProto();
    const absl::StatusOr<normd::v1::NormalizeResponse> response = client.Normalize(request);
    if (!response.ok()) return response.status();
    std::cout << "step " << step << ": version " << response->state().version()
              << (response->state().replayed() ? ", replayed" : "") << "\n";
  }

  const absl::StatusOr<normd::v1::Session> trained = client.GetSession(session->name(), normd::v1::SESSION_VIEW_FULL);
  if (!trained.ok()) return trained.status();
  Print("running mean", Tensor::FromProto(trained->state().mean()));
  Print("running var", Tensor::FromProto(trained->state().var()));

  normd::v1::NormalizeRequest inference;
  inference.set_session(session->name());
  *inference.mutable_x() = Tensor::F32({1, 2}, {5, 30}).ToProto();
  const absl::StatusOr<normd::v1::NormalizeResponse> response = client.Normalize(inference);
  if (!response.ok()) return response.status();
  Print("y", Tensor::FromProto(response->outputs(0).tensor()));

  normd::v1::DeleteSessionRequest remove;
  remove.set_name(session->name());
  return client.DeleteSession(remove);
}

}  // namespace

int main(int argc, char** argv) {
  const auto client = normd::Client::Connect(argc > 1 ? argv[1] : "127.0.0.1:8001");
  const absl::Status status = client.ok() ? Run(**client) : client.status();
  if (!status.ok()) std::cerr << normd::client::ToText(status) << "\n";
  return status.ok() ? 0 : 1;
}

// Makes one training step from the rows of two workers (synchronised BatchNorm): each worker sends its own rows and
// gets their moments, and one of them commits the moments of both. The moments carry exact sums, so that the state
// equals that of a single batch with all rows bit for bit, in whatever order the moments are committed.
//   moments 127.0.0.1:8001
#include <normd/client.h>

#include <future>
#include <iostream>

using normd::client::Tensor;

namespace {

using MomentsOr = absl::StatusOr<normd::v1::Moments>;

MomentsOr ComputeMoments(normd::Client& client, const std::string& session, std::vector<float> values) {
  normd::v1::ComputeMomentsRequest request;
  request.set_session(session);
  request.set_want_exact(true);
  *request.mutable_x() = Tensor::F32({static_cast<int64_t>(values.size()), 1}, values).ToProto();
  absl::StatusOr<normd::v1::ComputeMomentsResponse> response = client.ComputeMoments(request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_moments());
}

absl::Status Run(normd::Client& client) {
  normd::v1::CreateSessionRequest create;
  create.mutable_session()->set_num_channels(1);
  create.mutable_session()->set_default_dtype(normd::v1::DTYPE_F32);
  normd::v1::BatchNorm* batch_norm = create.mutable_session()->mutable_spec()->mutable_batch_norm();
  batch_norm->set_layout(normd::v1::LAYOUT_CHANNELS_LAST);
  batch_norm->mutable_running()->set_momentum(1);  // the state is that of the newest step alone
  const absl::StatusOr<normd::v1::Session> session = client.CreateSession(create);
  if (!session.ok()) return session.status();

  // Workers are usually machines. Here they are threads that share one Client, which is safe from any number of
  // threads.
  const auto worker = [&](std::vector<float> rows) { return ComputeMoments(client, session->name(), std::move(rows)); };
  std::future<MomentsOr> first = std::async(std::launch::async, worker, std::vector<float>{1, 2, 3});
  std::future<MomentsOr> second = std::async(std::launch::async, worker, std::vector<float>{4, 5, 6, 7, 8});

  normd::v1::CommitMomentsRequest commit;
  commit.set_session(session->name());
  // With a StepId the commit may be sent again, and counts once.
  commit.mutable_step()->set_client_id("trainer");
  commit.mutable_step()->set_sequence(1);
  for (std::future<MomentsOr>* moments : {&first, &second}) {
    MomentsOr computed = moments->get();
    if (!computed.ok()) return computed.status();
    *commit.add_moments() = *std::move(computed);
  }
  const absl::StatusOr<normd::v1::StateResult> result = client.CommitMoments(commit);
  if (!result.ok()) return result.status();

  const absl::StatusOr<normd::v1::Session> full = client.GetSession(session->name(), normd::v1::SESSION_VIEW_FULL);
  if (!full.ok()) return full.status();
  const absl::StatusOr<Tensor> mean = Tensor::FromProto(full->state().mean());
  const absl::StatusOr<Tensor> var = Tensor::FromProto(full->state().var());
  if (!mean.ok() || !var.ok()) return mean.ok() ? var.status() : mean.status();
  std::cout << "version " << result->version() << ": mean " << mean->ToDoubles()[0] << ", var " << var->ToDoubles()[0]
            << "\n";

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

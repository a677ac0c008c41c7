// The statistics of observations that several actors see, each counted once, and normalisation by them.
//   running_moments 127.0.0.1:8001
#include <normd/running_moments.h>

#include <iostream>
#include <thread>
#include <vector>

namespace {

// What an actor does: adds the observations of its own episode, [N, 2], as they come.
absl::Status Act(const normd::Client& client, const std::string& name, std::vector<float> observations) {
  const auto moments = normd::RunningMoments::Open(client, name, 2, {.prior_count = 0});
  if (!moments.ok()) return moments.status();
  if (absl::Status status = (*moments)->Update(observations); !status.ok()) return status;
  return (*moments)->Flush(absl::Seconds(10));  // without it, samples are sent each second and at the end
}

absl::Status Run(normd::Client& client) {
  const std::string name = "running-moments-example";
  // Actors are usually processes. Here they are threads that share one Client.
  absl::Status first, second;
  std::thread other([&] { first = Act(client, name, {1, 10, 3, 30}); });
  second = Act(client, name, {5, 50});
  other.join();
  for (const absl::Status& status : {first, second}) {
    if (!status.ok()) return status;
  }

  const auto learner = normd::RunningMoments::Open(client, name, 2, {.prior_count = 0});
  if (!learner.ok()) return learner.status();
  const auto snapshot = (*learner)->snapshot();  // stays as it is, whatever the actors add
  const std::vector<float> x = {3, 50};
  std::vector<float> y(x.size());
  if (absl::Status status = snapshot->Normalize(x, absl::MakeSpan(y)); !status.ok()) return status;
  std::cout << "count " << snapshot->count[0] << ", mean " << snapshot->mean[0] << " " << snapshot->mean[1] << ", max "
            << snapshot->max[0] << " " << snapshot->max[1] << "\n"
            << "y " << y[0] << " " << y[1] << "\n";

  normd::v1::DeleteSessionRequest remove;
  remove.set_name((*learner)->name());
  return client.DeleteSession(remove);
}

}  // namespace

int main(int argc, char** argv) {
  const auto client = normd::Client::Connect(argc > 1 ? argv[1] : "127.0.0.1:8001");
  const absl::Status status = client.ok() ? Run(**client) : client.status();
  if (!status.ok()) std::cerr << normd::client::ToText(status) << "\n";
  return status.ok() ? 0 : 1;
}

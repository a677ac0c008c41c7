// Sends many rows over one stream: their common fields are sent once, and no row waits for the reply to the row before.
//   stream 127.0.0.1:8001
#include <normd/client.h>

#include <iostream>
#include <thread>

using normd::client::Tensor;

namespace {

constexpr int kRows = 1000;

void WriteRows(normd::NormalizeStream& stream) {
  normd::v1::StreamRequest defaults;
  defaults.mutable_defaults()->mutable_request()->mutable_spec()->mutable_rms_norm();
  bool open = stream.Write(defaults);
  for (int row = 1; row <= kRows && open; ++row) {
    normd::v1::StreamRequest call;
    call.set_sequence(row);
    *call.mutable_call()->mutable_x() = Tensor::F32({1, 2}, {3.0f * row, 4.0f * row}).ToProto();
    open = stream.Write(call);  // false: the stream is broken, and Finish returns the reason
  }
  stream.WritesDone();
}

absl::Status Run(normd::Client& client) {
  const std::unique_ptr<normd::NormalizeStream> stream = client.OpenStream(/*deadline=*/absl::Seconds(60));
  // Writes beside the reader, because the buffers of both sides are bounded.
  std::thread writer(WriteRows, std::ref(*stream));

  int replies = 0, refused = 0;
  std::vector<float> last;
  for (normd::v1::StreamResponse response; stream->Read(&response);) {
    if (response.has_error()) {  // concerns this row alone; the stream goes on
      std::cerr << "row " << response.sequence() << ": "
                << normd::client::ToText(normd::client::ToStatus(response.error())) << "\n";
      ++refused;
      continue;
    }
    ++replies;
    const absl::StatusOr<Tensor> y = Tensor::FromProto(response.reply().outputs(0).tensor());
    if (y.ok() && response.sequence() == kRows) last = y->ToFloats();
  }
  writer.join();
  std::cout << replies << " rows, " << refused << " refused\n";
  if (!last.empty()) std::cout << "row " << kRows << ": " << last[0] << " " << last[1] << "\n";
  return stream->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  const auto client = normd::Client::Connect(argc > 1 ? argv[1] : "127.0.0.1:8001");
  const absl::Status status = client.ok() ? Run(**client) : client.status();
  if (!status.ok()) std::cerr << normd::client::ToText(status) << "\n";
  return status.ok() ? 0 : 1;
}

// One open NormalizeStream of a TestServer, calls and chunks in one line each.
#ifndef NORMD_TESTS_E2E_OPEN_STREAM_H_
#define NORMD_TESTS_E2E_OPEN_STREAM_H_

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "proto/wire/crc32c.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {

class OpenStream {
 public:
  explicit OpenStream(TestServer& server) : stream_(server.normalizer().NormalizeStream(&context_)) {}
  OpenStream(v1::Normalizer::Stub& stub, std::chrono::system_clock::time_point deadline) {
    context_.set_deadline(deadline);
    stream_ = stub.NormalizeStream(&context_);
  }

  // Shows `token`; an empty one is not shown.
  OpenStream(v1::Normalizer::Stub& stub, const std::string& token) {
    if (!token.empty()) context_.AddMetadata("authorization", "Bearer " + token);
    stream_ = stub.NormalizeStream(&context_);
  }

  bool Send(uint64_t sequence, const v1::NormalizeRequest& call) {
    v1::StreamRequest request;
    request.set_sequence(sequence);
    *request.mutable_call() = call;
    return stream_->Write(request);
  }
  bool SendDefaults(uint64_t sequence, const v1::NormalizeRequest& defaults) {
    v1::StreamRequest request;
    request.set_sequence(sequence);
    *request.mutable_defaults()->mutable_request() = defaults;
    return stream_->Write(request);
  }
  bool Send(const v1::StreamRequest& request) { return stream_->Write(request); }
  bool SendAll(const std::vector<v1::StreamRequest>& requests) {
    return std::all_of(requests.begin(), requests.end(), [this](const auto& request) { return Send(request); });
  }
  v1::StreamResponse Receive() {
    v1::StreamResponse response;
    EXPECT_TRUE(stream_->Read(&response));
    return response;
  }
  // A reply with the chunks after it in their place, each checked.
  v1::StreamResponse ReceiveWhole();
  bool AtEnd() {
    v1::StreamResponse response;
    return !stream_->Read(&response);
  }
  void HalfClose() { stream_->WritesDone(); }
  grpc::Status Finish() { return stream_->Finish(); }
  grpc::ClientContext& context() { return context_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamResponse>> stream_;
};

inline v1::StreamResponse OpenStream::ReceiveWhole() {
  v1::StreamResponse response = Receive();
  if (!response.has_reply()) return response;
  for (v1::Output& output : *response.mutable_reply()->mutable_outputs()) {
    if (!output.tensor().has_chunked()) continue;
    const uint64_t size_bytes = output.tensor().chunked().size_bytes();
    std::string data;
    for (bool last = false; !last;) {
      const v1::StreamResponse message = Receive();
      if (!message.has_chunk()) ADD_FAILURE() << "no chunk: " << message.ShortDebugString();
      if (!message.has_chunk()) return response;
      EXPECT_EQ(message.sequence(), response.sequence());
      EXPECT_EQ(message.chunk().offset(), static_cast<int64_t>(data.size()));
      EXPECT_EQ(message.chunk().crc32c(), wire::Crc32c(message.chunk().data()));
      data += message.chunk().data();
      last = message.chunk().last();
    }
    EXPECT_EQ(data.size(), size_bytes);
    output.mutable_tensor()->set_data(data);
  }
  return response;
}

// The chunks of a tensor's bytes.
inline std::vector<v1::StreamRequest> ChunksOf(uint64_t sequence, const std::string& data, size_t chunk_bytes) {
  std::vector<v1::StreamRequest> requests;
  size_t offset = 0;
  do {
    v1::StreamRequest& request = requests.emplace_back();
    request.set_sequence(sequence);
    v1::Chunk& chunk = *request.mutable_chunk();
    chunk.set_offset(static_cast<int64_t>(offset));
    chunk.set_data(data.substr(offset, chunk_bytes));
    chunk.set_crc32c(wire::Crc32c(chunk.data()));
    offset += chunk.data().size();
    chunk.set_last(offset == data.size());
  } while (offset < data.size());
  return requests;
}

// The call, which names the tensors, then their chunks.
inline std::vector<v1::StreamRequest> InChunks(uint64_t sequence, const v1::NormalizeRequest& call,
                                               size_t chunk_bytes) {
  v1::StreamRequest head;
  head.set_sequence(sequence);
  *head.mutable_call() = call;
  std::vector<v1::StreamRequest> requests = {head};
  const auto add = [&](const v1::Tensor& tensor, v1::Tensor* named) {
    named->mutable_chunked()->set_size_bytes(tensor.data().size());
    for (v1::StreamRequest& chunk : ChunksOf(sequence, tensor.data(), chunk_bytes)) requests.push_back(chunk);
  };
  if (call.has_residual()) add(call.residual().tensor(), head.mutable_call()->mutable_residual()->mutable_tensor());
  add(call.x(), head.mutable_call()->mutable_x());
  requests.front() = head;
  return requests;
}

}  // namespace normd::e2e

#endif  // NORMD_TESTS_E2E_OPEN_STREAM_H_

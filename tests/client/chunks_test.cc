// Requests taken apart and replies put together, without a server.
#include "client/cpp/chunks.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "client/cpp/tensor.h"
#include "proto/wire/crc32c.h"

namespace normd::client {
namespace {

v1::NormalizeRequest FullRequest() {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm()->set_eps(0);
  request.set_mode(v1::MODE_TRAINING);
  *request.mutable_x() = Tensor::F32({3, 2}, {1, 2, 3, 4, 5, 6}).ToProto();
  *request.mutable_residual()->mutable_tensor() = Tensor::F64({3, 2}, {10, 20, 30, 40, 50, 60}).ToProto();
  request.mutable_residual()->set_scale(0);
  *request.mutable_parameters()->mutable_weight() = Tensor::F32({2}, {7, 8}).ToProto();
  request.mutable_mask()->set_data("abc");
  request.add_outputs()->set_kind(v1::OUTPUT_KIND_H);
  request.mutable_step()->set_client_id("c");
  request.set_expected_version(0);
  request.mutable_max_staleness();
  request.set_want_timings(true);
  return request;
}

TEST(Chunks, TheCallIsTheRequestWithoutItsData) {
  v1::NormalizeRequest request = FullRequest();
  const v1::NormalizeRequest call = WithoutData(request);
  request.mutable_x()->mutable_chunked()->set_size_bytes(24);
  request.mutable_residual()->mutable_tensor()->mutable_chunked()->set_size_bytes(48);
  EXPECT_EQ(call.SerializeAsString(), request.SerializeAsString());
  request.set_session("sessions/a");
  EXPECT_EQ(WithoutData(request).SerializeAsString(), request.SerializeAsString());  // what is not data stays
  EXPECT_EQ(WithoutData({}).SerializeAsString(), "");
}

TEST(Chunks, AreCutToTheEnd) {
  const v1::Chunk first = CutChunk("abcdefg", 0, 4);
  EXPECT_EQ(first.data(), "abcd");
  EXPECT_FALSE(first.last());
  EXPECT_EQ(first.crc32c(), wire::Crc32c("abcd"));
  const v1::Chunk last = CutChunk("abcdefg", 4, 4);
  EXPECT_EQ(last.offset(), 4);
  EXPECT_EQ(last.data(), "efg");
  EXPECT_TRUE(last.last());
  EXPECT_TRUE(CutChunk("abcd", 0, 4).last());
  EXPECT_TRUE(CutChunk("", 0, 4).last());
}

TEST(Chunks, FitTheServersLimits) {
  v1::Limits limits;
  EXPECT_EQ(ChunkBytes(limits), size_t{1} << 20);
  limits.set_max_chunk_bytes(100000);
  EXPECT_EQ(ChunkBytes(limits), 100000u);
  limits.set_max_message_bytes(4096);
  EXPECT_LT(ChunkBytes(limits), 4096u);
  limits.set_max_message_bytes(1);
  EXPECT_GT(ChunkBytes(limits), 0u);
}

// A reply of y, moments and an empty mean for call 3.
std::vector<v1::StreamResponse> Reply() {
  std::vector<v1::StreamResponse> messages(4);
  for (v1::StreamResponse& message : messages) message.set_sequence(3);
  v1::NormalizeResponse& reply = *messages[0].mutable_reply();
  reply.add_outputs()->mutable_tensor()->mutable_chunked()->set_size_bytes(7);
  reply.add_outputs()->mutable_moments()->mutable_count()->set_data("inline");
  reply.add_outputs()->mutable_tensor()->mutable_chunked();
  *messages[1].mutable_chunk() = CutChunk("abcdefg", 0, 4);
  *messages[2].mutable_chunk() = CutChunk("abcdefg", 4, 4);
  *messages[3].mutable_chunk() = CutChunk("", 0, 4);
  return messages;
}

TEST(Chunks, AReplyIsPutTogether) {
  ReplyJoiner joiner(3);
  for (const v1::StreamResponse& message : Reply()) {
    EXPECT_FALSE(joiner.complete());
    ASSERT_TRUE(joiner.Take(message).ok());
  }
  ASSERT_TRUE(joiner.complete());
  const v1::NormalizeResponse response = joiner.TakeResponse();
  EXPECT_EQ(response.outputs(0).tensor().data(), "abcdefg");
  EXPECT_EQ(response.outputs(1).moments().count().data(), "inline");
  EXPECT_TRUE(response.outputs(2).tensor().has_data());
}

TEST(Chunks, AReplyThatDoesNotFitIsDataLoss) {
  using Messages = std::vector<v1::StreamResponse>;
  const std::vector<std::function<void(Messages&)>> spoilt = {
      [](Messages& m) { m[0].set_sequence(4); },
      [](Messages& m) { m[2].set_sequence(4); },
      [](Messages& m) { m[0].clear_item(); },
      [](Messages& m) { m[1] = m[0]; },
      [](Messages& m) { m.erase(m.begin()); },
      [](Messages& m) { m.erase(m.begin() + 1); },
      [](Messages& m) { m[2].mutable_chunk()->set_offset(-4); },
      [](Messages& m) { m[2].mutable_chunk()->set_crc32c(1); },
      [](Messages& m) { m[2].mutable_chunk()->set_last(false); },
      [](Messages& m) { m[1].mutable_chunk()->set_last(true); },
      [](Messages& m) { *m[2].mutable_chunk() = CutChunk("abcdefgh", 4, 4); },
      [](Messages& m) { m.push_back(m.back()); },
  };
  for (size_t i = 0; i < spoilt.size(); ++i) {
    Messages messages = Reply();
    spoilt[i](messages);
    ReplyJoiner joiner(3);
    absl::Status status;
    for (const v1::StreamResponse& message : messages) {
      if (status.ok()) status = joiner.Take(message);
    }
    EXPECT_TRUE(absl::IsDataLoss(status)) << i << ": " << status;
  }
}

}  // namespace
}  // namespace normd::client

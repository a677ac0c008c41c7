// The table's rows of messages: every method with little in it, batches, and sessions, against a whole normd.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "grpc/reflection/v1/reflection.pb.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/sessions.pb.h"
#include "server/rpc/services/method_names.h"
#include "tests/amplification/normd_fixture.h"
#include "tests/amplification/wire.h"

namespace normd {
namespace {

using wire_bytes::Message;
using wire_bytes::Repeated;

constexpr int kCalls = 50;
constexpr char kNormalize[] = "/normd.v1.Normalizer/Normalize";
constexpr char kBatch[] = "/normd.v1.Normalizer/BatchNormalize";
constexpr char kStream[] = "/normd.v1.Normalizer/NormalizeStream";
constexpr char kMoments[] = "/normd.v1.Normalizer/ComputeMoments";

void SetRow(const std::vector<int64_t>& shape, size_t floats, v1::Tensor* x) {
  x->set_dtype(v1::DTYPE_F32);
  x->mutable_shape()->Assign(shape.begin(), shape.end());
  x->set_data(std::string(floats * sizeof(float), '\0'));
}

v1::NormalizeRequest RmsNorm() {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  SetRow({1, 4}, 4, request.mutable_x());
  return request;
}

class AmplificationServiceTable : public testing::Test {
 protected:
  void Expect(const std::string& name, std::string_view path, const std::string& body, const Units& per_call = kRequest,
              int calls = kCalls) {
    normd_.ExpectWithinBound(name, path, body, calls, per_call);
  }

  WholeNormd normd_;
};

TEST_F(AmplificationServiceTable, EveryMethodWithLittleInItCostsWhatItMay) {
  for (const std::string& path : rpc::AllMethodPaths()) {
    if (path.ends_with("/Watch")) continue;  // never ends; it is a row of its own
    Expect(path + ", no message", path, "");
    Expect(path + ", empty", path, Message(""));
    Expect(path + ", no protobuf", path, Message(std::string(100, '\xFF')));
    Expect(path + ", unknown fields", path, Message(Repeated("\xF8\x01\x01", 1'000)));
    Expect(path + ", deep", path, Message(Repeated("\x0A\x7F", 200)));
    Expect(path + ", two messages", path, Message("") + Message(""), {.messages = 1, .requests = 1});
  }
  Expect("no such method", "/normd.v1.Normalizer/Nothing", Message(""));
  Expect("no such method, 10 KB of it", "/" + std::string(10'000, 'x'), Message(""));
}

TEST_F(AmplificationServiceTable, RequestsCostWhatTheyMay) {
  Expect("normalize: a row", kNormalize, Packed(RmsNorm()));
  v1::NormalizeRequest request = RmsNorm();
  request.mutable_x()->mutable_shape()->Clear();
  for (int i = 0; i < 10'000; ++i) request.mutable_x()->add_shape(1);
  Expect("normalize: 10,000 dimensions", kNormalize, Packed(request));
  request = RmsNorm();
  for (int i = 0; i < 10'000; ++i) request.add_outputs()->set_kind(v1::OUTPUT_KIND_MOMENTS);
  Expect("normalize: 10,000 outputs", kNormalize, Packed(request));
  request = RmsNorm();
  for (int i = 0; i < 10'000; ++i) request.mutable_spec()->mutable_rms_norm()->add_axes(1);
  Expect("normalize: 10,000 axes", kNormalize, Packed(request));
  request = RmsNorm();
  request.mutable_spec()->clear_method();
  request.set_session("sessions/" + std::string(10'000, 's'));
  Expect("normalize: a session's name of 10 KB", kNormalize, Packed(request));
  request.set_session("sessions/none");
  Expect("normalize: a session that is not there", kNormalize, Packed(request));
  request = RmsNorm();
  request.mutable_x()->clear_data();
  request.mutable_x()->mutable_shared()->set_region(std::string(10'000, 'r'));
  Expect("normalize: shared memory that is not there", kNormalize, Packed(request));
  request = RmsNorm();
  request.mutable_x()->mutable_chunked()->set_size_bytes(uint64_t{1} << 40);
  Expect("normalize: chunks of 1 TiB announced", kNormalize, Packed(request));
}

// No byte of x, and statistics of each of its many groups.
TEST_F(AmplificationServiceTable, TensorsWithoutElementsCostWhatTheyMay) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1 << 24, 0}, {0, 1 << 24}, {1 << 24, 0, 4}, {0}}) {
    v1::NormalizeRequest request;
    SetRow(shape, 0, request.mutable_x());
    for (const v1::OutputKind kind : {v1::OUTPUT_KIND_Y, v1::OUTPUT_KIND_MEAN, v1::OUTPUT_KIND_MOMENTS}) {
      request.add_outputs()->set_kind(kind);
    }
    const auto expect = [&](const std::string& name) {
      Expect("normalize, no element, " + name, kNormalize, Packed(request), kRequest, 4);
      v1::ComputeMomentsRequest moments;
      *moments.mutable_spec() = request.spec();
      *moments.mutable_x() = request.x();
      Expect("moments, no element, " + name, kMoments, Packed(moments), kRequest, 4);
      moments.set_want_exact(true);
      Expect("exact moments, no element, " + name, kMoments, Packed(moments), kRequest, 4);
    };
    request.mutable_spec()->mutable_layer_norm()->add_normalized_shape(shape.back());
    expect("LayerNorm");
    request.mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
    request.set_mode(v1::MODE_TRAINING);
    expect("BatchNorm");
    request.mutable_spec()->mutable_group_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
    request.mutable_spec()->mutable_group_norm()->set_num_groups(1);
    request.clear_mode();
    expect("GroupNorm");
  }
}

TEST_F(AmplificationServiceTable, BatchItemsCostWhatTheyMay) {
  const auto expect = [this](const std::string& name, const v1::NormalizeRequest& item, int items) {
    v1::BatchNormalizeRequest batch;
    for (int i = 0; i < items; ++i) *batch.add_items() = item;
    Expect("batch: " + name, kBatch, Packed(batch),
           {.requests = 1, .batch_items = static_cast<double>(batch.items_size())}, 4);
  };
  expect("4,096 empty items", v1::NormalizeRequest(), 4'096);
  expect("100,000 empty items", v1::NormalizeRequest(), 100'000);
  expect("4,096 rows", RmsNorm(), 4'096);
  v1::NormalizeRequest missing;
  missing.set_session("sessions/none");
  SetRow({1, 4}, 4, missing.mutable_x());
  expect("4,096 sessions that are not there", missing, 4'096);
}

TEST_F(AmplificationServiceTable, StreamsOfCallsCostWhatTheyMay) {
  constexpr int kItems = 500;
  const auto expect = [this](const std::string& name, const std::string& first, const std::string& item) {
    Expect("stream: " + name, kStream, first + Repeated(item, kItems), {.messages = 5 * kItems, .requests = 1}, 4);
  };
  v1::StreamRequest call;
  *call.mutable_call() = RmsNorm();
  expect("rows", "", Packed(call));
  expect("empty messages", "", Message(""));
  v1::StreamRequest defaults;
  *defaults.mutable_defaults()->mutable_request() = RmsNorm();
  expect("defaults", "", Packed(defaults));
  v1::StreamRequest chunked;
  *chunked.mutable_call() = RmsNorm();
  chunked.mutable_call()->mutable_x()->mutable_chunked()->set_size_bytes(1 << 20);
  chunked.mutable_call()->mutable_x()->mutable_shape()->Set(1, 1 << 18);
  v1::StreamRequest chunk;
  chunk.mutable_chunk();
  expect("empty chunks", Packed(chunked), Packed(chunk));
  expect("tensors in chunks announced", "", Packed(chunked));
}

TEST_F(AmplificationServiceTable, ReflectionCostsWhatItMay) {
  grpc::reflection::v1::ServerReflectionRequest request;
  request.set_file_containing_symbol("normd.v1.Normalizer");
  Expect("reflection: a file", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
         Repeated(Packed(request), 20), {.requests = 20}, 4);
}

}  // namespace
}  // namespace normd

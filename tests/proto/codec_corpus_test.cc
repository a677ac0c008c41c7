// The corpus of the codec's fuzzers, tests/fuzz/codec: cpp_* is what this file writes with the generated serialisers
// (with NORMD_WRITE_CORPUS=1 in the environment, to the source tree), python_* what Python's protobuf wrote of messages
// of its own, hostile_* was made or found. Held here: what serialisers write takes the fast path.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "normd/v1/normalizer.pb.h"
#include "tests/proto/codec_input.h"

namespace normd::fuzz {
namespace {

using Corpus = std::map<std::string, std::string>;  // by file name

std::filesystem::path CorpusFolder() { return std::filesystem::path(NORMD_SOURCE_DIR) / "tests/fuzz/codec"; }

Corpus Committed() {
  Corpus files;
  for (const auto& entry : std::filesystem::directory_iterator(CorpusFolder())) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

// ---- What the C++ serialiser writes

class Writer {
 public:
  // Under "cpp_" and `name`, cut in a way of its own.
  template <typename Message>
  void Write(const std::string& name, const Message& message) {
    const auto types = CodecTypes();
    const auto type = std::find_if(types.begin(), types.end(), [&](const CodecType& each) {
      return each.prototype->GetDescriptor() == message.GetDescriptor();
    });
    std::string& bytes = corpus["cpp_" + name];
    bytes.push_back(static_cast<char>(type - types.begin()));
    bytes.push_back(static_cast<char>(corpus.size() * 5 % 64));
    bytes += message.SerializeAsString();
  }

  Corpus corpus;
};

void Fill(v1::DType dtype, std::initializer_list<int64_t> shape, v1::Tensor* tensor) {
  size_t bytes = dtype == v1::DTYPE_F64 ? 8 : dtype == v1::DTYPE_F32 ? 4 : 2;
  tensor->set_dtype(dtype);
  for (const int64_t extent : shape) {
    tensor->add_shape(extent);
    bytes *= static_cast<size_t>(extent);
  }
  std::string& data = *tensor->mutable_data();
  for (size_t i = 0; i < bytes; ++i) data.push_back(static_cast<char>(i * 37));
}

v1::NormalizeRequest Request(v1::DType dtype = v1::DTYPE_F32) {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  Fill(dtype, {2, 8}, request.mutable_x());
  return request;
}

void SetShared(uint64_t size_bytes, v1::SharedRange* range) {
  range->set_region("r-0123456789abcdef0123456789abcdef");
  range->set_offset(4096);
  range->set_size_bytes(size_bytes);
}

// Every method with every field of its spec, through reflection, so that a new one is not forgotten.
void WriteMethods(Writer& writer) {
  const google::protobuf::Descriptor& type = *v1::NormSpec::descriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    v1::NormalizeRequest request = Request(static_cast<v1::DType>(1 + i % 4));
    google::protobuf::Message& spec =
        *request.mutable_spec()->GetReflection()->MutableMessage(request.mutable_spec(), type.field(i));
    const google::protobuf::Reflection& reflection = *spec.GetReflection();
    for (int f = 0; f < spec.GetDescriptor()->field_count(); ++f) {
      const google::protobuf::FieldDescriptor* field = spec.GetDescriptor()->field(f);
      if (field->is_repeated()) {
        reflection.AddInt64(&spec, field, -1);
        reflection.AddInt64(&spec, field, 300);
      } else if (field->cpp_type() == field->CPPTYPE_DOUBLE) {
        reflection.SetDouble(&spec, field, 1e-6);
      } else if (field->cpp_type() == field->CPPTYPE_ENUM) {
        reflection.SetEnumValue(&spec, field, 2);
      } else if (field->cpp_type() == field->CPPTYPE_BOOL) {
        reflection.SetBool(&spec, field, true);
      } else if (field->cpp_type() == field->CPPTYPE_INT64) {
        reflection.SetInt64(&spec, field, 4);
      }
    }
    writer.Write("normalize_" + type.field(i)->name(), request);
  }
}

v1::NormalizeRequest FullRequest() {
  v1::NormalizeRequest request = Request();
  Fill(v1::DTYPE_F32, {8}, request.mutable_parameters()->mutable_weight());
  Fill(v1::DTYPE_F64, {8}, request.mutable_parameters()->mutable_bias());
  Fill(v1::DTYPE_F16, {8}, request.mutable_parameters()->mutable_running_mean());
  Fill(v1::DTYPE_BF16, {8}, request.mutable_parameters()->mutable_running_var());
  Fill(v1::DTYPE_F32, {2, 8}, request.mutable_residual()->mutable_tensor());
  request.mutable_residual()->set_scale(0.5);
  request.mutable_residual()->set_rounding(v1::RESIDUAL_ROUNDING_KEEP_WIDE);
  Fill(v1::DTYPE_F32, {2}, request.mutable_mask());
  for (int kind = 1; kind <= 5; ++kind) request.add_outputs()->set_kind(static_cast<v1::OutputKind>(kind));
  SetShared(64, request.mutable_outputs(0)->mutable_shared());
  request.set_mode(v1::MODE_TRAINING);
  request.set_precision(v1::PRECISION_FAST);
  request.set_device(v1::DEVICE_CPU);
  request.set_want_timings(true);
  request.mutable_max_staleness()->set_nanos(250000000);
  return request;
}

v1::NormalizeRequest Step() {
  v1::NormalizeRequest request = Request();
  request.set_session("sessions/layer-1");
  request.set_mode(v1::MODE_TRAINING);
  request.mutable_step()->set_client_id("trainer-7");
  request.mutable_step()->set_sequence(uint64_t{1} << 60);
  request.set_expected_version(0);
  return request;
}

void WriteRequests(Writer& writer) {
  WriteMethods(writer);
  writer.Write("normalize_empty", v1::NormalizeRequest());
  writer.Write("normalize_full", FullRequest());
  writer.Write("normalize_step", Step());
  v1::NormalizeRequest request = Request();
  request.mutable_x()->set_data("");
  request.set_validate_only(true);
  writer.Write("normalize_no_bytes", request);
  request.clear_x();
  writer.Write("normalize_no_x", request);
  Fill(v1::DTYPE_BF16, {1, 3, 10, 20}, request.mutable_x());
  writer.Write("normalize_two_byte_lengths", request);
  SetShared(1 << 30, request.mutable_x()->mutable_shared());
  writer.Write("normalize_shared", request);
  v1::BatchNormalizeRequest batch;
  writer.Write("batch_empty", batch);
  *batch.add_items() = Request();
  writer.Write("batch_one", batch);
  *batch.add_items() = FullRequest();
  batch.add_items();
  *batch.add_items() = Step();
  writer.Write("batch_mixed", batch);
  v1::ComputeMomentsRequest moments;
  moments.mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
  Fill(v1::DTYPE_F32, {2, 3, 4}, moments.mutable_x());
  writer.Write("moments_spec", moments);
  moments.set_session("sessions/s");
  Fill(v1::DTYPE_F16, {4}, moments.mutable_mask());
  writer.Write("moments_session_mask", moments);
}

void WriteStreams(Writer& writer) {
  v1::StreamRequest request;
  writer.Write("stream_empty", request);
  *request.mutable_defaults()->mutable_request() = FullRequest();
  request.mutable_defaults()->mutable_request()->clear_x();
  writer.Write("stream_defaults", request);
  request.set_sequence(300);
  Fill(v1::DTYPE_F32, {2, 4}, request.mutable_call()->mutable_x());
  writer.Write("stream_call", request);
  request.mutable_call()->mutable_x()->mutable_chunked()->set_size_bytes(96);
  writer.Write("stream_call_chunked", request);
  request.mutable_chunk()->set_data(std::string(48, 'c'));
  writer.Write("stream_chunk_first", request);
  request.mutable_chunk()->set_offset(48);
  request.mutable_chunk()->set_last(true);
  request.mutable_chunk()->set_crc32c(0xdeadbeef);
  writer.Write("stream_chunk_last", request);
}

v1::NormalizeResponse Response() {
  v1::NormalizeResponse response;
  response.mutable_applied()->set_method("layer_norm");
  response.mutable_applied()->set_eps(1e-5);
  response.mutable_applied()->set_kernel("cpu/avx3/rows");
  v1::Output* const y = response.add_outputs();
  y->set_kind(v1::OUTPUT_KIND_Y);
  Fill(v1::DTYPE_F32, {2, 8}, y->mutable_tensor());
  return response;
}

v1::NormalizeResponse FullResponse() {
  v1::NormalizeResponse response = Response();
  response.mutable_state()->set_version(12);
  response.mutable_state()->set_epoch("e-1");
  response.mutable_state()->set_reason(v1::REASON_APPLIED);
  response.mutable_timings()->set_compute_ns(-1);
  for (const v1::OutputKind kind : {v1::OUTPUT_KIND_H, v1::OUTPUT_KIND_MEAN, v1::OUTPUT_KIND_INV_STD}) {
    v1::Output* const output = response.add_outputs();
    output->set_kind(kind);
    Fill(v1::DTYPE_F16, {2}, output->mutable_tensor());
  }
  SetShared(128, response.mutable_outputs(1)->mutable_tensor()->mutable_shared());
  v1::Moments& moments = *response.add_outputs()->mutable_moments();
  Fill(v1::DTYPE_F64, {2}, moments.mutable_count());
  Fill(v1::DTYPE_F64, {2}, moments.mutable_mean());
  Fill(v1::DTYPE_F64, {2}, moments.mutable_m2());
  return response;
}

google::rpc::Status Error() {
  google::rpc::Status error;
  error.set_code(3);
  error.set_message("x.shape: [2, 8]; must have 3 axes");
  error.add_details()->PackFrom(Request());
  return error;
}

void WriteResponses(Writer& writer) {
  writer.Write("normalize_response_empty", v1::NormalizeResponse());
  writer.Write("normalize_response", Response());
  writer.Write("normalize_response_full", FullResponse());
  v1::BatchNormalizeResponse batch;
  *batch.add_items()->mutable_response() = Response();
  *batch.add_items()->mutable_status() = Error();
  *batch.add_items()->mutable_response() = FullResponse();
  writer.Write("batch_response", batch);
  v1::StreamResponse stream;
  stream.set_sequence(~uint64_t{0});
  *stream.mutable_reply() = FullResponse();
  writer.Write("stream_reply", stream);
  *stream.mutable_error() = Error();
  writer.Write("stream_error", stream);
  stream.mutable_chunk()->set_data(std::string(200, 'y'));
  stream.mutable_chunk()->set_offset(int64_t{1} << 40);
  writer.Write("stream_reply_chunk", stream);
  v1::ComputeMomentsResponse moments;
  moments.mutable_applied()->set_k(3);
  Fill(v1::DTYPE_F64, {3}, moments.mutable_moments()->mutable_mean());
  Fill(v1::DTYPE_F64, {3}, moments.mutable_moments()->mutable_m2());
  writer.Write("moments_response", moments);
}

Corpus Written() {
  Writer writer;
  WriteRequests(writer);
  WriteStreams(writer);
  WriteResponses(writer);
  return writer.corpus;
}

bool StartsWith(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

TEST(CodecCorpusTest, HoldsWhatTheSerialiserWrites) {
  const Corpus written = Written();
  if (std::getenv("NORMD_WRITE_CORPUS") != nullptr) {
    for (const auto& [name, bytes] : written) std::ofstream(CorpusFolder() / name, std::ios::binary) << bytes;
  }
  Corpus committed = Committed();
  std::erase_if(committed, [](const auto& file) { return !StartsWith(file.first, "cpp_"); });
  EXPECT_EQ(committed, written);
}

TEST(CodecCorpusTest, TakesTheFastPathForWhatSerialisersWriteAndForHalfOfAll) {
  size_t fast = 0;
  std::map<std::string, size_t> written;
  const Corpus corpus = Committed();
  for (const auto& [name, bytes] : corpus) {
    SCOPED_TRACE(name);
    const std::optional<CodecInput> input = ReadCodecInput(bytes);
    const CodecVerdict verdict = input.has_value() ? CheckSplit(*input) : CodecVerdict();
    EXPECT_STREQ(verdict.wrong, nullptr);
    fast += verdict.fast ? 1 : 0;
    if (StartsWith(name, "hostile_")) continue;
    ++written[name.substr(0, name.find('_'))];
    EXPECT_TRUE(verdict.fast);
    const std::unique_ptr<google::protobuf::Message> message(input->type.prototype->New());
    EXPECT_TRUE(message->ParseFromArray(input->message.data(), static_cast<int>(input->message.size())));
  }
  std::printf("fast path: %zu of %zu files, all of the %zu from C++ and %zu from Python\n", fast, corpus.size(),
              written["cpp"], written["python"]);
  EXPECT_GE(2 * fast, corpus.size());
  EXPECT_GE(written["cpp"], 30U);
  EXPECT_GE(written["python"], 10U);
}

}  // namespace
}  // namespace normd::fuzz

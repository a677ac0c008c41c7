// proto/wire against the generated code: the layouts are those of the .proto files, and a split message that is parsed
// and put together is what parsing the whole gives.
#include "proto/wire/split.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "normd/v1/normalizer.pb.h"
#include "proto/wire/writer.h"
#include "tests/proto/resolve_blocks.h"

namespace normd::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Whether tensor bytes can be reached from `type`. Our messages do not contain themselves.
bool LeadsToTensor(const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (HoldsTensorBytes(field)) return true;
    if (field.message_type() != nullptr && LeadsToTensor(*field.message_type())) return true;
  }
  return false;
}

void ExpectSame(const MessageLayout& layout, const Descriptor& type) {
  SCOPED_TRACE(type.full_name());
  std::map<uint32_t, const MessageLayout*> listed;
  for (const MessageLayout::Field& field : layout.fields) listed[field.number] = field.message;
  EXPECT_EQ(listed.size(), layout.fields.size());
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const bool wanted =
        HoldsTensorBytes(field) || (field.message_type() != nullptr && LeadsToTensor(*field.message_type()));
    const auto found = listed.find(static_cast<uint32_t>(field.number()));
    ASSERT_EQ(found != listed.end(), wanted) << field.full_name();
    if (!wanted) continue;
    ASSERT_EQ(found->second == nullptr, HoldsTensorBytes(field)) << field.full_name();
    if (found->second != nullptr) ExpectSame(*found->second, *field.message_type());
    listed.erase(found);
  }
  EXPECT_TRUE(listed.empty()) << "a field that the message does not have";
}

TEST(LayoutTest, ListsTheFieldsThatLeadToTensorBytesAndNoOthers) {
  ExpectSame(kNormalizeRequest, *v1::NormalizeRequest::descriptor());
  ExpectSame(kNormalizeResponse, *v1::NormalizeResponse::descriptor());
  ExpectSame(kBatchNormalizeRequest, *v1::BatchNormalizeRequest::descriptor());
  ExpectSame(kBatchNormalizeResponse, *v1::BatchNormalizeResponse::descriptor());
  ExpectSame(kStreamRequest, *v1::StreamRequest::descriptor());
  ExpectSame(kStreamResponse, *v1::StreamResponse::descriptor());
  ExpectSame(kComputeMomentsRequest, *v1::ComputeMomentsRequest::descriptor());
  ExpectSame(kComputeMomentsResponse, *v1::ComputeMomentsResponse::descriptor());
}

void FillTensor(size_t bytes, char value, v1::Tensor* tensor) {
  tensor->set_dtype(v1::DTYPE_F32);
  tensor->add_shape(static_cast<int64_t>(bytes / 4));
  tensor->set_data(std::string(bytes, value));
}

v1::NormalizeRequest FullRequest() {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_layer_norm()->set_eps(1e-6);
  FillTensor(8, 'w', request.mutable_parameters()->mutable_weight());
  FillTensor(8, 'b', request.mutable_parameters()->mutable_bias());
  FillTensor(400, 'r', request.mutable_residual()->mutable_tensor());
  request.mutable_residual()->set_scale(0.5);
  FillTensor(12, 'm', request.mutable_mask());
  request.mutable_step()->set_client_id("someone");
  FillTensor(400, 'x', request.mutable_x());
  return request;
}

// Cuts of `bytes`: `cuts` many at random places, so that some pieces are empty.
std::vector<Segment> Cut(const std::string& bytes, int cuts, std::mt19937& random) {
  std::multiset<size_t> at = {0, bytes.size()};
  for (int i = 0; i < cuts; ++i) at.insert(random() % (bytes.size() + 1));
  std::vector<Segment> segments;
  for (auto next = std::next(at.begin()); next != at.end(); ++next) {
    segments.emplace_back(reinterpret_cast<const std::byte*>(bytes.data()) + *std::prev(next),
                          *next - *std::prev(next));
  }
  return segments;
}

// True when the fast path took the bytes; in any case it agrees with the generated parser.
template <typename Message>
bool SplitAgrees(const std::string& bytes, const MessageLayout& layout, int cuts, std::mt19937& random) {
  const std::vector<Segment> segments = Cut(bytes, cuts, random);
  const std::optional<SplitMessage> split = Split(segments, layout);
  if (!split.has_value()) return false;
  Message whole;
  Message parts;
  const bool whole_ok = whole.ParseFromString(bytes);
  const bool parts_ok = parts.ParseFromString(split->metadata);
  EXPECT_EQ(whole_ok, parts_ok);
  if (!whole_ok || !parts_ok) return true;
  ResolveBlocks(segments, split->blocks, &parts);
  EXPECT_EQ(whole.SerializeAsString(), parts.SerializeAsString());
  return true;
}

TEST(SplitTest, GivesTheMessageWithoutItsTensorsWhereverItIsCut) {
  std::mt19937 random(1);
  const std::string bytes = FullRequest().SerializeAsString();
  for (int cuts = 0; cuts < 200; ++cuts) {
    EXPECT_TRUE(SplitAgrees<v1::NormalizeRequest>(bytes, kNormalizeRequest, cuts, random)) << cuts;
  }
}

TEST(SplitTest, TakesNoTensorBytesIntoTheMetadata) {
  v1::NormalizeRequest request = FullRequest();
  FillTensor(1 << 20, 'x', request.mutable_x());
  const std::string bytes = request.SerializeAsString();
  std::mt19937 random(2);
  const std::optional<SplitMessage> split = Split(Cut(bytes, 3, random), kNormalizeRequest);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->blocks.size(), 5U);
  EXPECT_LT(split->metadata.size(), 150U);
}

TEST(SplitTest, KnowsBatchesAndStreams) {
  std::mt19937 random(3);
  v1::BatchNormalizeRequest batch;
  for (int i = 0; i < 300; ++i) *batch.add_items() = FullRequest();
  EXPECT_TRUE(SplitAgrees<v1::BatchNormalizeRequest>(batch.SerializeAsString(), kBatchNormalizeRequest, 7, random));
  v1::StreamRequest message;
  message.set_sequence(9);
  *message.mutable_call() = FullRequest();
  EXPECT_TRUE(SplitAgrees<v1::StreamRequest>(message.SerializeAsString(), kStreamRequest, 7, random));
  message.mutable_chunk()->set_data("abcdefgh");
  EXPECT_TRUE(SplitAgrees<v1::StreamRequest>(message.SerializeAsString(), kStreamRequest, 7, random));
}

TEST(SplitTest, LeavesMergingAndTheChoiceAmongPayloadsToTheParser) {
  std::mt19937 random(4);
  v1::NormalizeRequest other = FullRequest();
  other.mutable_x()->mutable_shared()->set_region("r");
  const std::string data = FullRequest().SerializeAsString();
  const std::string shared = other.SerializeAsString();
  for (const std::string& bytes : {data + shared, shared + data, data + data, data + shared + data}) {
    EXPECT_TRUE(SplitAgrees<v1::NormalizeRequest>(bytes, kNormalizeRequest, 5, random));
  }
}

// Damaged messages: whatever the walker takes, the parser sees the same of.
TEST(SplitTest, AgreesWithTheParserOnDamagedMessages) {
  const google::protobuf::LogSilencer silencer;  // of invalid UTF-8, which is refused
  std::mt19937 random(5);
  const std::string good = FullRequest().SerializeAsString();
  int taken = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (uint32_t n = random() % 4; n > 0; --n) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (SplitAgrees<v1::NormalizeRequest>(bytes, kNormalizeRequest, 3, random)) ++taken;
    ASSERT_FALSE(HasFailure()) << "attempt " << i;
  }
  EXPECT_GT(taken, 1000);
}

TEST(SplitTest, LeavesGroupsAndOverlongMetadataToTheParser) {
  std::mt19937 random(6);
  const std::string group = "\x0b\x0c";  // start and end of group 1
  EXPECT_FALSE(SplitAgrees<v1::NormalizeRequest>(group, kNormalizeRequest, 0, random));
  v1::NormalizeRequest request = FullRequest();
  request.set_session(std::string(kMaxMetadataBytes, 's'));
  EXPECT_FALSE(SplitAgrees<v1::NormalizeRequest>(request.SerializeAsString(), kNormalizeRequest, 0, random));
}

TEST(SplitTest, TakesAnEmptyMessage) { EXPECT_TRUE(Split({}, kNormalizeRequest).has_value()); }

std::vector<Segment> OneSegment(const std::string& bytes) {
  return {Segment(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size())};
}

TEST(TopFieldsTest, TellsNumbersAndPlaces) {
  const std::string bytes("\x08\x96\x01\x7a\x03xyz\x11\1\2\3\4\5\6\7\10\x7a\x00", 19);
  const std::vector<Segment> segments = OneSegment(bytes);
  const auto fields = TopFields(segments, 4);
  ASSERT_TRUE(fields.has_value());
  ASSERT_EQ(fields->size(), 4U);
  EXPECT_EQ((*fields)[0].number, 1U);
  EXPECT_EQ((*fields)[0].varint, 150U);
  EXPECT_EQ((*fields)[1].number, 15U);
  EXPECT_EQ((*fields)[1].bytes.offset, 5U);
  EXPECT_EQ((*fields)[1].bytes.size_bytes, 3U);
  EXPECT_EQ((*fields)[2].type, WireType::kFixed64);
  EXPECT_EQ((*fields)[3].bytes.offset, 19U);
  EXPECT_FALSE(TopFields(OneSegment(bytes), 3).has_value()) << "one more than allowed";
  std::mt19937 random(1);
  EXPECT_EQ(TopFields(Cut(bytes, 5, random), 4)->size(), 4U);
}

TEST(TopFieldsTest, RefusesWhatIsCutOffAndWhatNoSerialiserWrites) {
  const std::string bytes("\x08\x96\x01\x7a\x03xyz", 8);
  for (const size_t end : {1, 2, 4, 5, 6, 7}) {
    const std::string cut = bytes.substr(0, end);
    EXPECT_FALSE(TopFields(OneSegment(cut), 9).has_value()) << end;
  }
  EXPECT_FALSE(TopFields(OneSegment(std::string("\x00\x01", 2)), 9).has_value()) << "field 0";
  EXPECT_FALSE(TopFields(OneSegment("\x0b\x0c"), 9).has_value()) << "a group";
  EXPECT_TRUE(TopFields({}, 9)->empty());
}

}  // namespace
}  // namespace normd::wire

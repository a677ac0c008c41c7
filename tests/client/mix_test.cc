#include "client/normload/mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/normload/calls.h"

namespace normd::client {
namespace {

using testing::HasSubstr;

TEST(Mix, AnEntryIsReadFromText) {
  const auto entry = ParseMixEntry("weight=3,method=rms-norm,shape=16x1024,dtype=f16,transport=stream,eps=1e-5");
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->weight, 3);
  EXPECT_EQ(entry->method, "rms-norm");
  EXPECT_DOUBLE_EQ(entry->spec.rms_norm().eps(), 1e-5);
  EXPECT_EQ(entry->shape, (std::vector<int64_t>{16, 1024}));
  EXPECT_EQ(entry->dtype, v1::DTYPE_F16);
  EXPECT_EQ(entry->transport, Transport::kStream);
  EXPECT_EQ(entry->rows(), 16);
  EXPECT_EQ(entry->bytes(), 16 * 1024 * 2);
  EXPECT_EQ(entry->name(), "rms-norm 16x1024 f16 stream");
}

TEST(Mix, ACommaInAValueBelongsToIt) {
  const auto entry = ParseMixEntry("method=layer-norm,axes=1,2,shape=2x3x4");
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_THAT(entry->spec.layer_norm().axes(), testing::ElementsAre(1, 2));
  const auto shape = ParseMixEntry("shape=2,3,4,training");
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_THAT(shape->shape, testing::ElementsAre(2, 3, 4));
}

TEST(Mix, ASessionTrainsWithSteps) {
  const auto entry = ParseMixEntry("session=sessions/x,training,steps,shape=8x4,transport=batch,batch_items=3");
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->session, "sessions/x");
  EXPECT_TRUE(entry->training);
  EXPECT_TRUE(entry->steps);
  EXPECT_EQ(entry->items(), 3);
  const v1::NormalizeRequest request = MakeRequest(*entry);
  EXPECT_EQ(request.session(), "sessions/x");
  EXPECT_EQ(request.mode(), v1::MODE_TRAINING);
  EXPECT_EQ(request.x().data().size(), 8u * 4 * 4);
  EXPECT_EQ(ParseMixEntry("session=x")->session, "sessions/x");
}

TEST(Mix, PreparedCallsHoldOneMessageEach) {
  const auto entries = ParseMixJson(R"({"entries": [{"transport": "batch", "batch-items": 2, "shape": [4, 8]},
                                                    {"transport": "stream", "shape": "4x8"}, {"shape": [4, 8]}]})");
  ASSERT_TRUE(entries.ok()) << entries.status();
  const std::vector<PreparedCall> calls = PrepareCalls(*entries);
  EXPECT_EQ(calls[0].batch.items_size(), 2);
  EXPECT_EQ(calls[1].message.call().x().shape(0), 4);
  EXPECT_EQ(calls[2].request.x().data(), calls[0].batch.items(1).x().data());
  EXPECT_FALSE(calls[1].request.has_x());
}

TEST(Mix, JsonSaysTheSame) {
  const auto entries = ParseMixJson(R"([{"weight": 0.5, "method": "layer_norm", "axes": [0, 1], "shape": [2, 3],
                                         "dtype": "bf16", "training": false}])");
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 1u);
  const auto text = ParseMixEntry("weight=0.5,axes=0,1,shape=2x3,dtype=bf16");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*entries)[0].name(), text->name());
  EXPECT_EQ((*entries)[0].weight, 0.5);
  EXPECT_EQ((*entries)[0].spec.SerializeAsString(), text->spec.SerializeAsString());
}

TEST(Mix, BadEntriesAreNamed) {
  for (const auto& [text, named] : std::vector<std::pair<std::string, std::string>>{
           {"", "an empty key is no key of a call"},
           {"wait=3", "wait is no key of a call; the keys are weight, method"},
           {"weight=0", "--weight is 0; it must be above 0 and at most"},
           {"weight=nan", "--weight is nan; it must be above 0"},
           {"weight=1e9", "at most 1e+06"},
           {"method=no-norm", "unknown method no-norm"},
           {"shape=4x-1", "--shape is 4x-1; it must be made of extents of at least 0"},
           {"shape=4xq", "--shape is 4xq; it must be integers joined by ',' or 'x'"},
           {"shape=1000000x1000000x1000000x1000000", "must have at most 2130706432 bytes"},
           {"transport=batch,batch-items=60000", "must have at most 2130706432 bytes"},
           {"batch-items=0", "--batch-items is 0; it must be 1 to 65536"},
           {"transport=pigeon", "--transport is pigeon; it must be unary, batch, stream or shared"},
           {"dtype=i8", "i8"},
           {"steps", "--steps needs --session and --training, because only training on a session has steps"},
           {"session=a,steps", "--steps"},
           {"session=a,method=rms-norm", "--method does not go with --session a"},
           {"session=a,eps=1", "--eps does not go with --session a"},
           {"session=", "--session is empty; it must be the name"},
           {"method=rms-norm,groups=2", "--groups does not apply"},
           {"training=1", "--training takes no value"},
           {"weight", "--weight needs W"}}) {
    const absl::Status status = ParseMixEntry(text).status();
    EXPECT_TRUE(IsUsageError(status)) << text << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(named)) << text;
  }
}

TEST(Mix, BadJsonIsNamed) {
  for (const auto& [text, named] : std::vector<std::pair<std::string, std::string>>{
           {"", "not valid JSON"},
           {"{", "not valid JSON"},
           {"[]", "holds no list of entries"},
           {"{\"weight\": 1}", "holds no list of entries"},
           {"[1]", "entry 1: 1 is no object"},
           {"[{}, {\"wait\": 1}]", "entry 2: wait is no key of a call"},
           {"[{\"weight\": true}]", "weight is true; it must be"},
           {"[{\"shape\": [1.5]}]", "shape is [1.5]; it must be"},
           {"[{\"training\": 1}]", "training is 1; it must be true or false"},
           {"[{\"weight\": \"many\"}]", "--weight is many; it must be a number"}}) {
    const absl::Status status = ParseMixJson(text).status();
    EXPECT_TRUE(IsUsageError(status)) << text << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(named)) << text;
  }
}

TEST(Mix, ErrorsSayWhichValue) {
  EXPECT_THAT(std::string(ParseMix({"shape=4x4", "weight=0"}).status().message()), HasSubstr("--mix weight=0: "));
  EXPECT_THAT(std::string(ParseMix({"/nonexistent/mix.json"}).status().message()),
              HasSubstr("--mix /nonexistent/mix.json: "));
  EXPECT_THAT(std::string(ParseMix(std::vector<std::string>(65, "shape=1x1")).status().message()),
              HasSubstr("--mix has 65 entries; it must have at most 64"));
}

TEST(Mix, MemoryIsLimitedBeforeItIsTaken) {
  const auto big = ParseMixEntry("shape=100000x1000");
  ASSERT_TRUE(big.ok());
  EXPECT_TRUE(CheckMemory({*big}, 4096).ok());
  EXPECT_TRUE(IsUsageError(CheckMemory(std::vector<MixEntry>(30, *big), 1)));
  const auto steps = ParseMixEntry("shape=100000x1000,session=s,training,steps");
  ASSERT_TRUE(steps.ok());
  EXPECT_TRUE(CheckMemory({*steps}, 4).ok());
  EXPECT_TRUE(IsUsageError(CheckMemory({*steps}, 64)));
}

TEST(MixPicker, DrawsByWeightAndSeed) {
  std::vector<MixEntry> entries(3);
  entries[0].weight = 1;
  entries[1].weight = 6;
  entries[2].weight = 3;
  MixPicker picker(entries, 5), again(entries, 5), other(entries, 6);
  constexpr int kDraws = 100000;
  std::vector<int> counts(3);
  int differing = 0;
  for (int i = 0; i < kDraws; ++i) {
    const size_t drawn = picker.Next();
    ++counts[drawn];
    EXPECT_EQ(again.Next(), drawn);
    differing += other.Next() != drawn ? 1 : 0;
  }
  EXPECT_NEAR(counts[0], 0.1 * kDraws, 600);
  EXPECT_NEAR(counts[1], 0.6 * kDraws, 1000);
  EXPECT_NEAR(counts[2], 0.3 * kDraws, 1000);
  EXPECT_GT(differing, 0);
}

TEST(Mix, SharedMemoryNeedsAUnixSocketAndNoUnaryCallsBesideIt) {
  const absl::StatusOr<MixEntry> shared = ParseMixEntry("transport=shared");
  const absl::StatusOr<MixEntry> stream = ParseMixEntry("transport=stream");
  const absl::StatusOr<MixEntry> unary = ParseMixEntry("transport=unary");
  ASSERT_TRUE(shared.ok() && stream.ok() && unary.ok());
  EXPECT_TRUE(CheckShared({*shared, *stream}, "unix:/s").ok());
  EXPECT_TRUE(CheckShared({*unary}, "127.0.0.1:8001").ok());
  EXPECT_FALSE(CheckShared({*shared}, "127.0.0.1:8001").ok());
  EXPECT_FALSE(CheckShared({*shared, *unary}, "unix:/s").ok());
}

}  // namespace
}  // namespace normd::client

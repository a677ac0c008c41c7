// The table's rows of session operations, against a whole normd. What a session holds is bounded by the store's limits
// (--max_sessions, --max_total_bytes), so rows of operations on one session say how large that is.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/exact_sums/group_sums.h"
#include "normd/v1/sessions.pb.h"
#include "tests/amplification/normd_fixture.h"

namespace normd {
namespace {

constexpr int kSessionCalls = 50;

std::string PathOf(const std::string& method) { return "/normd.v1.Sessions/" + method; }

v1::CreateSessionRequest BatchNormSession(int64_t channels, const std::string& id = "") {
  v1::CreateSessionRequest create;
  create.set_session_id(id);
  create.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  create.mutable_session()->set_num_channels(channels);
  return create;
}

class AmplificationSessionTable : public testing::Test {
 protected:
  void Expect(const std::string& name, const std::string& method, const std::string& body,
              const Units& per_call = kRequest, int calls = kSessionCalls) {
    normd_.ExpectWithinBound("sessions: " + name, PathOf(method), body, calls, per_call);
  }
  void Create(const v1::CreateSessionRequest& create) { normd_.Call(PathOf("CreateSession"), Packed(create), 1); }

  WholeNormd normd_;
};

TEST_F(AmplificationSessionTable, SmallSessionsCostWhatTheyMay) {
  Create(BatchNormSession(4, "s"));
  v1::GetSessionRequest get;
  get.set_name("sessions/s");
  Expect("create, 4 channels", "CreateSession", Packed(BatchNormSession(4)));
  Expect("create, the same", "CreateSession", Packed(BatchNormSession(4, "s")));
  Expect("get", "GetSession", Packed(get));
  get.set_view(v1::SESSION_VIEW_FULL);
  Expect("get, full", "GetSession", Packed(get));
  v1::UpdateSessionRequest update;
  update.mutable_session()->set_name("sessions/s");
  (*update.mutable_session()->mutable_labels())["a"] = "b";
  update.mutable_update_mask()->add_paths("labels");
  Expect("update labels", "UpdateSession", Packed(update));
  for (int i = 0; i < 1'000; ++i) update.mutable_update_mask()->add_paths("labels");
  Expect("update, 1,000 paths", "UpdateSession", Packed(update));
  update.mutable_update_mask()->Clear();
  update.mutable_update_mask()->add_paths("labels");
  for (int i = 0; i < 1'000; ++i) (*update.mutable_session()->mutable_labels())[std::to_string(i)] = "";
  Expect("update, 1,000 labels", "UpdateSession", Packed(update));
  v1::ForkSessionRequest fork;
  fork.set_name("sessions/s");
  Expect("fork", "ForkSession", Packed(fork));
  v1::ResetSessionRequest reset;
  reset.set_name("sessions/s");
  Expect("reset", "ResetSession", Packed(reset));
  v1::ExportSessionRequest exported;
  exported.set_name("sessions/s");
  Expect("export", "ExportSession", Packed(exported));
  v1::CommitMomentsRequest commit;
  commit.set_session("sessions/s");
  for (int i = 0; i < 1'000; ++i) commit.add_moments();
  Expect("commit, 1,000 empty moments", "CommitMoments", Packed(commit));
}

void SetSums(int64_t values, double value, v1::Tensor* tensor) {
  const std::vector<double> data(static_cast<size_t>(values), value);
  tensor->set_dtype(v1::DTYPE_F64);
  tensor->add_shape(values);
  tensor->set_data(data.data(), data.size() * sizeof(double));
}

// Sums of elements that take all digits, and what widening makes of them: decoded, compared, merged and stepped with.
TEST_F(AmplificationSessionTable, ExactSumsCostWhatTheyMay) {
  constexpr int64_t kChannels = 512;
  Create(BatchNormSession(kChannels, "exact"));
  const auto moments_of = [](const std::vector<double>& elements, DType dtype) {
    GroupSums sums(dtype, kChannels);
    for (int64_t c = 0; c < kChannels; ++c) {
      for (const double x : elements) {
        dtype == DType::kF64 ? sums.wide()[static_cast<size_t>(c)].Add(x)
                             : sums.narrow()[static_cast<size_t>(c)].Add(x);
      }
    }
    const Moment moment = sums.NearestMoments().front();
    v1::Moments message;
    SetSums(kChannels, moment.count, message.mutable_count());
    SetSums(kChannels, moment.mean, message.mutable_mean());
    SetSums(kChannels, moment.m2, message.mutable_m2());
    message.set_exact(sums.Encode());
    return message;
  };
  const v1::Moments narrow = moments_of({0x1.8p120, 0x1p-149, 3}, DType::kF32);
  const v1::Moments wide = moments_of({0x1.8p500, 0x1p-1074, 3}, DType::kF64);
  const v1::Moments ordinary = moments_of({1.5, 2.5, 3.1}, DType::kF64);
  const auto expect = [this](const std::string& name, const std::vector<v1::Moments>& parts) {
    v1::CommitMomentsRequest commit;
    commit.set_session("sessions/exact");
    for (const v1::Moments& part : parts) *commit.add_moments() = part;
    Expect("commit, " + name, "CommitMoments", Packed(commit), kRequest, 8);
    commit.mutable_moments(0)->mutable_exact()->back() = '\x7F';
    Expect("commit, " + name + ", refused", "CommitMoments", Packed(commit), kRequest, 8);
  };
  expect("exact sums of f32", {narrow});
  expect("exact sums of f64", {wide});
  expect("exact sums of f64, ordinary", {ordinary});
  expect("eight parts of f32", std::vector<v1::Moments>(8, narrow));
  std::vector<v1::Moments> mixed(8, narrow);
  mixed.push_back(wide);
  expect("parts of both ranges", mixed);
}

TEST_F(AmplificationSessionTable, ListsCostWhatTheyMay) {
  for (int i = 0; i < 20; ++i) {
    normd_.Call(PathOf("CreateSession"), Packed(BatchNormSession(4)), kSessionCalls);
  }
  v1::ListSessionsRequest list;
  list.set_page_size(1'000);
  // Each session of the page is read, and told of as an item of a batch is.
  constexpr Units kPage = {.requests = 1, .batch_items = 1'000};
  Expect("a page of 1,000", "ListSessions", Packed(list), kPage, 8);
  list.set_view(v1::SESSION_VIEW_FULL);
  Expect("a page of 1,000, full", "ListSessions", Packed(list), kPage, 8);
  list.set_filter("a=b");
  Expect("a page that nothing matches", "ListSessions", Packed(list), kPage, 8);
  std::string filter = "a=b";
  for (int i = 0; i < 1'000; ++i) filter += " AND a=b";
  list.set_filter(filter);
  Expect("a filter of 1,000 terms", "ListSessions", Packed(list), kPage, 8);
}

// A number, and no byte of its statistics, which are a mean and a variance of eight bytes for each channel.
TEST_F(AmplificationSessionTable, ManyChannelsCostWhatTheyMay) {
  for (const int64_t channels : {int64_t{1} << 10, int64_t{1} << 20}) {
    Expect("create, " + std::to_string(channels) + " channels", "CreateSession", Packed(BatchNormSession(channels)),
           {.requests = 1, .stored_bytes = 16 * static_cast<double>(channels)}, 8);
  }
  Expect("create, 2^40 channels", "CreateSession", Packed(BatchNormSession(int64_t{1} << 40)), kRequest, 8);
}

TEST_F(AmplificationSessionTable, OperationsOnALargeSessionCostWhatTheyMay) {
  constexpr int64_t kChannels = 1 << 18;
  constexpr Units kLarge = {.requests = 1, .stored_bytes = 16 * static_cast<double>(kChannels)};
  Create(BatchNormSession(kChannels, "large"));
  v1::GetSessionRequest get;
  get.set_name("sessions/large");
  Expect("get, large", "GetSession", Packed(get), kRequest, 8);
  get.set_view(v1::SESSION_VIEW_FULL);
  Expect("get in full, large", "GetSession", Packed(get), kLarge, 8);
  v1::UpdateSessionRequest update;
  update.mutable_session()->set_name("sessions/large");
  (*update.mutable_session()->mutable_labels())["a"] = "b";
  update.mutable_update_mask()->add_paths("labels");
  Expect("update labels, large", "UpdateSession", Packed(update), kLarge, 8);
  v1::ResetSessionRequest reset;
  reset.set_name("sessions/large");
  Expect("reset, large", "ResetSession", Packed(reset), kLarge, 8);
  v1::ExportSessionRequest exported;
  exported.set_name("sessions/large");
  Expect("export, large", "ExportSession", Packed(exported), kLarge, 8);
  v1::ForkSessionRequest fork;
  fork.set_name("sessions/large");
  Expect("fork, large", "ForkSession", Packed(fork), kLarge, 8);
}

}  // namespace
}  // namespace normd

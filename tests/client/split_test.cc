#include "client/normctl/split.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/client/every_field.h"

namespace normd::client {
namespace {

using Axes = std::vector<int>;

TEST(Split, KnowsTheAxesThatMethodsNeverLookAcross) {
  v1::NormSpec spec;
  const auto axes = [&](v1::Mode mode, int rank) { return IndependentAxes(spec, mode, rank); };
  spec.mutable_layer_norm()->add_normalized_shape(4);
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 3), (Axes{0, 1}));
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 1), Axes{});
  spec.mutable_layer_norm()->add_normalized_shape(4);
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 2), Axes{});
  spec.mutable_layer_norm()->Clear();
  spec.mutable_layer_norm()->add_axes(-3);
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 3), (Axes{1, 2}));
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 4), (Axes{0, 2, 3}));
  spec.mutable_rms_norm();
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 3), (Axes{0, 1}));
  spec.mutable_rms_norm()->add_normalized_shape(4);
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 2), Axes{0});
  spec.mutable_scale_norm();
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 3), (Axes{0, 1}));
  spec.mutable_lp_norm()->set_axis(0);
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 2), Axes{1});
  spec.mutable_lp_norm()->clear_axis();
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 2), Axes{0}) << "the last axis is normalised";
  spec.mutable_lp_norm()->add_axes(-2);
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 3), (Axes{0, 2}));
  spec.mutable_batch_norm();
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 4), (Axes{0, 2, 3}));
  EXPECT_EQ(axes(v1::MODE_TRAINING, 4), Axes{});
  spec.mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 4), (Axes{0, 1, 2}));
  spec.mutable_instance_norm();
  EXPECT_EQ(axes(v1::MODE_TRAINING, 3), Axes{0});
  spec.mutable_instance_norm()->set_track_running_statistics(true);
  EXPECT_EQ(axes(v1::MODE_TRAINING, 3), Axes{});
  spec.mutable_group_norm();
  EXPECT_EQ(axes(v1::MODE_INFERENCE, 3), Axes{0});
  EXPECT_EQ(IndependentAxes(v1::NormSpec(), v1::MODE_INFERENCE, 2), Axes{});
}

TEST(Split, CutsAlongALaterAxisWhereTheFirstHasTooLargeIndices) {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_layer_norm()->add_normalized_shape(1024);
  *request.mutable_x() = Tensor::F32({1, 1000, 1024}, std::vector<float>(1000 * 1024)).ToProto();
  const std::optional<Cut> cut = ChooseCut(request, request.spec(), 1 << 20);
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->axis, 1);
  EXPECT_LT(cut->indices, 256);
  EXPECT_GT(cut->indices, 200);
  EXPECT_EQ(ChooseCut(request, request.spec(), 8 << 20)->axis, 0);
  // The axes of statistics and masks are not those of x.
  request.add_outputs()->set_kind(v1::OUTPUT_KIND_MEAN);
  EXPECT_FALSE(ChooseCut(request, request.spec(), 1 << 20).has_value());
  EXPECT_FALSE(ChooseCut(request, request.spec(), 1 << 10).has_value());
}

TEST(Split, APieceOfALaterAxisIsGatheredAndJoined) {
  v1::NormalizeRequest request;
  std::vector<float> values(2 * 5 * 3);
  std::iota(values.begin(), values.end(), 0.0f);
  *request.mutable_x() = Tensor::F32({2, 5, 3}, values).ToProto();
  EXPECT_EQ(Tensor::FromProto(CutAxis(request, 1, 2, 1).x())->ToFloats(), (std::vector<float>{6, 7, 8, 21, 22, 23}));
  PieceJoiner joiner(1, 5, true);
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {2, 2}, {4, 1}}) {
    v1::NormalizeResponse reply;
    reply.add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
    *reply.mutable_outputs(0)->mutable_tensor() = CutAxis(request, 1, first, count).x();
    ASSERT_TRUE(joiner.Add(reply, first).ok());
  }
  const v1::NormalizeResponse whole = joiner.Take();
  EXPECT_EQ(whole.outputs(0).tensor().SerializeAsString(), request.x().SerializeAsString());
}

TEST(Split, CutsEveryTensorThatHasRows) {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm()->set_eps(0.5);
  *request.mutable_x() = Tensor::F32({3, 2}, {1, 2, 3, 4, 5, 6}).ToProto();
  *request.mutable_residual()->mutable_tensor() = Tensor::F64({3, 2}, {10, 20, 30, 40, 50, 60}).ToProto();
  request.mutable_residual()->set_scale(0);
  request.mutable_mask()->add_shape(3);
  request.mutable_mask()->set_data("\1\2\3");
  *request.mutable_parameters()->mutable_weight() = Tensor::F32({2}, {7, 8}).ToProto();
  request.add_outputs()->set_kind(v1::OUTPUT_KIND_H);
  request.set_precision(v1::PRECISION_FAST);
  const v1::NormalizeRequest cut = CutAxis(request, 0, 1, 2);
  EXPECT_EQ(Tensor::FromProto(cut.x())->ToFloats(), (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(Tensor::FromProto(cut.residual().tensor())->ToDoubles(), (std::vector<double>{30, 40, 50, 60}));
  EXPECT_TRUE(cut.residual().has_scale());
  EXPECT_EQ(cut.mask().data(), "\2\3");
  EXPECT_EQ(cut.mask().shape(0), 2);
  // Everything else is the same.
  v1::NormalizeRequest rest = cut;
  *rest.mutable_x() = request.x();
  *rest.mutable_residual()->mutable_tensor() = request.residual().tensor();
  *rest.mutable_mask() = request.mask();
  EXPECT_EQ(rest.SerializeAsString(), request.SerializeAsString());
}

TEST(Split, EveryPieceIsAsTheWholeInAllElse) {
  for (v1::NormalizeRequest& request : WithEveryField<v1::NormalizeRequest>()) {
    for (const bool all_have_rows : {false, true}) {
      const auto tensors = [all_have_rows](v1::NormalizeRequest& of) {
        std::vector<v1::Tensor*> with_rows = {of.mutable_x()};
        if (all_have_rows) {
          with_rows.push_back(of.mutable_residual()->mutable_tensor());
          with_rows.push_back(of.mutable_mask());
        }
        return with_rows;
      };
      for (v1::Tensor* tensor : tensors(request)) {
        tensor->set_shape(0, 4);
        if (tensor->has_data()) tensor->set_data("00112233");
      }
      v1::NormalizeRequest want = request;
      for (v1::Tensor* tensor : tensors(want)) {
        tensor->set_shape(0, 2);
        if (tensor->has_data()) tensor->set_data("1122");
      }
      EXPECT_EQ(CutAxis(request, 0, 1, 2).DebugString(), want.DebugString());
    }
  }
}

TEST(Split, AnXWithoutRowsGoesAsAWhole) {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_layer_norm()->add_normalized_shape(2);
  *request.mutable_x() = Tensor::F32({0, 2}, {}).ToProto();
  *request.mutable_parameters()->mutable_weight() = Tensor::F32({2}, {1, 2}).ToProto();
  const std::unique_ptr<Client> nobody =
      Client::Connect("unix:/nonexistent/normd.sock", {.deadline = absl::Milliseconds(100)}).value();
  const auto response = NormalizeInPieces(*nobody, request, request.spec(), /*max_bytes=*/1, [](int64_t, int64_t) {});
  EXPECT_FALSE(response.ok()) << "nobody serves there";
}

TEST(Split, JoinsOutputsAndAddsTimings) {
  v1::NormalizeResponse first, second;
  *first.add_outputs()->mutable_tensor() = Tensor::F32({1, 2}, {1, 2}).ToProto();
  first.mutable_outputs(0)->set_kind(v1::OUTPUT_KIND_Y);
  *first.add_outputs()->mutable_tensor() = Tensor::F32({2}, {9, 9}).ToProto();
  first.mutable_outputs(1)->set_kind(v1::OUTPUT_KIND_MEAN);
  first.mutable_timings()->set_compute_ns(5);
  second = first;
  *second.mutable_outputs(0)->mutable_tensor() = Tensor::F32({2, 2}, {3, 4, 5, 6}).ToProto();
  PieceJoiner joiner(0, 3, false);
  ASSERT_TRUE(joiner.Add(first, 0).ok());
  ASSERT_TRUE(joiner.Add(second, 1).ok());
  EXPECT_EQ(joiner.whole().outputs(0).tensor().shape(0), 3);
  EXPECT_EQ(Tensor::FromProto(joiner.whole().outputs(0).tensor())->ToFloats(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(joiner.whole().outputs(1).tensor().shape(0), 2);  // the same statistics in every piece
  EXPECT_EQ(joiner.whole().timings().compute_ns(), 10);
  EXPECT_TRUE(absl::IsInternal(joiner.Add(second, 2))) << "two rows where one is left";
  second.clear_outputs();
  EXPECT_TRUE(absl::IsInternal(joiner.Add(second, 1)));
}

TEST(Split, RefusesRepliesThatAreNoPieces) {
  const auto add = [](std::vector<int64_t> first_shape, std::vector<int64_t> second_shape, size_t second_bytes) {
    PieceJoiner joiner(1, 4, true);
    v1::NormalizeResponse reply;
    reply.add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
    v1::Tensor& y = *reply.mutable_outputs(0)->mutable_tensor();
    y.set_dtype(v1::DTYPE_F32);
    y.mutable_shape()->Add(first_shape.begin(), first_shape.end());
    y.set_data(std::string(32, 'y'));  // [2, 2, 2]
    const absl::Status status = joiner.Add(reply, 0);
    if (!status.ok()) return status;
    y.mutable_shape()->Clear();
    y.mutable_shape()->Add(second_shape.begin(), second_shape.end());
    y.set_data(std::string(second_bytes, 'z'));
    return joiner.Add(reply, 2);
  };
  EXPECT_TRUE(add({2, 2, 2}, {2, 2, 2}, 32).ok());
  EXPECT_TRUE(absl::IsInternal(add({2, 2, 2}, {4, 1, 2}, 32))) << "another extent before the axis";
  EXPECT_TRUE(absl::IsInternal(add({2, 2, 2}, {2, 1, 4}, 32))) << "another extent behind the axis";
  EXPECT_TRUE(absl::IsInternal(add({2, 2, 2}, {2, 2, 2}, 31)));
  EXPECT_TRUE(absl::IsInternal(add({2, 2, 2}, {2, 3, 2}, 48))) << "more than is left";
  EXPECT_TRUE(absl::IsInternal(add({2, 2, 2}, {2, -2, 2}, 32)));
  EXPECT_TRUE(absl::IsInternal(add({-2, -2, 2}, {2, 2, 2}, 32)));
  // The product of the extents wraps around to 8.
  EXPECT_TRUE(absl::IsInternal(add({(int64_t{1} << 62) + 2, 4, 1}, {2, 2, 2}, 32)));
  EXPECT_TRUE(absl::IsInternal(add({2, 2, 2}, {2, (int64_t{1} << 62) + 2, 2}, 32)));
}

}  // namespace
}  // namespace normd::client

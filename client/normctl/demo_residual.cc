// normctl demo, part (d): twelve residual blocks around a small fixed sublayer F; the server computes every norm.
// Pre-norm: x <- x + F(Norm(x)); the stream is the unrolled sum x0 + sum F(Norm(x)) and grows.
// Post-norm: x <- Norm(x + F(x)); the stream keeps its size.
// The server also adds the residual (one rounding, ROUND_FIRST), so sums in the same order give the same bits here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/table.h"
#include "client/normctl/demo.h"

namespace normd::client {
namespace {

constexpr int kLayers = 12;
constexpr int64_t kRows = 8, kWidth = 64;
// LayerNorm with eps 1e-5 leaves rows of root mean square 1 up to eps / (2 variance).
constexpr double kPostNormTolerance = 1e-3;

using Values = std::vector<float>;

// The fixed sublayer of one block: a random matrix that keeps the size of a normalised row, then tanh.
class Sublayer {
 public:
  explicit Sublayer(int layer) : weights_(kWidth * kWidth) {
    std::mt19937 random(1000u + static_cast<unsigned>(layer));
    for (float& weight : weights_) {
      // Uniform in [-1, 1), of variance 1/3. Made from bits, so that it is the same on every standard library.
      weight = static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f;
      weight *= std::sqrt(3.0f / static_cast<float>(kWidth));
    }
  }

  Values operator()(const Values& x) const {
    Values out(x.size());
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t to = 0; to < kWidth; ++to) {
        float sum = 0;
        for (int64_t from = 0; from < kWidth; ++from) sum += weights_[to * kWidth + from] * x[row * kWidth + from];
        out[row * kWidth + to] = std::tanh(sum);
      }
    }
    return out;
  }

 private:
  std::vector<float> weights_;
};

// The stream before the first block.
Values Start() {
  std::mt19937 random(7);
  Values out(kRows * kWidth);
  for (float& value : out) value = 2 * (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
  return out;
}

double StreamRms(const Values& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

struct Normed {
  Values y;  // Norm(x + residual)
  Values h;  // x + residual
};

absl::StatusOr<Normed> ServedNorm(Client& client, const Values& x, const Values* residual) {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_layer_norm()->add_normalized_shape(kWidth);
  *request.mutable_x() = Tensor::F32({kRows, kWidth}, x).ToProto();
  request.add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
  if (residual != nullptr) {
    *request.mutable_residual()->mutable_tensor() = Tensor::F32({kRows, kWidth}, *residual).ToProto();
    request.add_outputs()->set_kind(v1::OUTPUT_KIND_H);
  }
  absl::StatusOr<v1::NormalizeResponse> response = client.Normalize(request);
  if (!response.ok()) return response.status();
  const absl::StatusOr<Tensor> y = TakeOutput(*response, v1::OUTPUT_KIND_Y);
  if (!y.ok()) return y.status();
  Normed out{y->ToFloats(), x};
  if (residual == nullptr) return out;
  const absl::StatusOr<Tensor> h = TakeOutput(*response, v1::OUTPUT_KIND_H);
  if (!h.ok()) return h.status();
  out.h = h->ToFloats();
  return out;
}

struct Stack {
  std::vector<double> rms;            // of the stream at the start and after each block
  std::vector<Values> contributions;  // F(...) of each block
  Values stream;                      // at the end
};

absl::StatusOr<Stack> PreNorm(Client& client) {
  Stack stack;
  stack.stream = Start();
  stack.rms.push_back(StreamRms(stack.stream));
  absl::StatusOr<Normed> norm = ServedNorm(client, stack.stream, nullptr);
  for (int layer = 0; layer < kLayers; ++layer) {
    if (!norm.ok()) return norm.status();
    stack.contributions.push_back(Sublayer(layer)(norm->y));
    // One call adds this block's contribution and computes the norm of the next block.
    norm = ServedNorm(client, stack.stream, &stack.contributions.back());
    if (!norm.ok()) return norm.status();
    stack.stream = norm->h;
    stack.rms.push_back(StreamRms(stack.stream));
  }
  return stack;
}

absl::StatusOr<Stack> PostNorm(Client& client) {
  Stack stack;
  stack.stream = Start();
  stack.rms.push_back(StreamRms(stack.stream));
  for (int layer = 0; layer < kLayers; ++layer) {
    stack.contributions.push_back(Sublayer(layer)(stack.stream));
    absl::StatusOr<Normed> norm = ServedNorm(client, stack.stream, &stack.contributions.back());
    if (!norm.ok()) return norm.status();
    stack.stream = std::move(norm->y);
    stack.rms.push_back(StreamRms(stack.stream));
  }
  return stack;
}

// x0 + F1 + F2 + ..., added in this order in f32.
Values UnrolledSum(const std::vector<Values>& contributions) {
  Values sum = Start();
  for (const Values& contribution : contributions) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += contribution[i];
  }
  return sum;
}

std::string Bar(double rms) { return std::string(static_cast<size_t>(std::lround(std::min(rms, 6.0) * 8)), '#'); }

}  // namespace

absl::Status RunResidual(Demo& demo) {
  const absl::StatusOr<Stack> pre = PreNorm(demo.client);
  if (!pre.ok()) return pre.status();
  const absl::StatusOr<Stack> post = PostNorm(demo.client);
  if (!post.ok()) return post.status();
  Table table({{"block", Align::kRight},
               {"pre-norm RMS", Align::kRight},
               {"post-norm RMS", Align::kRight},
               {"pre-norm stream"}});
  for (size_t i = 0; i < pre->rms.size(); ++i) {
    table.AddRow({i == 0 ? "x0" : absl::StrCat(i), absl::StrFormat("%.4f", pre->rms[i]),
                  absl::StrFormat("%.4f", post->rms[i]), Bar(pre->rms[i])});
  }
  absl::StrAppend(&demo.text, table.Render(demo.width), "\n");

  const Values unrolled = UnrolledSum(pre->contributions);
  const bool equal = demo.Check(std::memcmp(unrolled.data(), pre->stream.data(), unrolled.size() * sizeof(float)) == 0,
                                "residual: the pre-norm stream equals x0 + sum F(Norm(x)), bit for bit");
  bool level = true;
  for (size_t i = 1; i < post->rms.size(); ++i) level = level && std::fabs(post->rms[i] - 1) <= kPostNormTolerance;
  demo.Check(level, "residual: every post-norm block leaves an RMS of 1");
  const bool grows = demo.Check(pre->rms.back() > pre->rms.front(), "residual: the pre-norm stream grows");
  absl::StrAppend(&demo.text, "Pre-norm stream = x0 + sum F(Norm(x)), bit for bit: ", equal ? "yes" : "NO",
                  "; it grows: ", grows ? "yes" : "NO", ". Post-norm keeps RMS 1: ", level ? "yes" : "NO", ".\n");
  demo.json["residual"] = {{"pre_norm_rms", pre->rms}, {"post_norm_rms", post->rms}, {"unrolled_sum_equal", equal}};
  return absl::OkStatus();
}

}  // namespace normd::client

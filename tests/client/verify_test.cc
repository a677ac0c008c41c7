// normctl verify against a small server that answers with f64 results computed in 113 bits.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/cli/tensor_file.h"
#include "client/normctl/commands.h"
#include "normd/v1/normalizer.grpc.pb.h"
#include "tests/support/wide.h"

namespace normd::client {
namespace {

using oracle::Wide;

// RMSNorm over the last axis. Rows of zeros stay zeros.
std::vector<double> RmsNorm(const std::vector<double>& x, size_t columns, double eps = 0) {
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size(); row += columns) {
    Wide squares = 0;
    for (size_t i = row; i < row + columns; ++i) squares += Wide(x[i]) * x[i];
    if (squares == 0) continue;
    const Wide root = oracle::Sqrt(squares / Wide(columns) + Wide(eps));
    for (size_t i = row; i < row + columns; ++i) y[i] = static_cast<double>(x[i] / root);
  }
  return y;
}

// y * w + b in f64, as without a rounding between the steps.
void ApplyAffine(const v1::Parameters& parameters, size_t columns, std::vector<double>& values) {
  const auto of = [](const v1::Tensor& tensor) { return Tensor::FromProto(tensor)->ToDoubles(); };
  const std::vector<double> weight =
      parameters.has_weight() ? of(parameters.weight()) : std::vector<double>(columns, 1);
  const std::vector<double> bias = parameters.has_bias() ? of(parameters.bias()) : std::vector<double>(columns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = values[i] * weight[i % columns] + bias[i % columns];
}

bool Fits(const v1::Parameters& parameters, size_t columns) {
  const auto fits = [&](const v1::Tensor& tensor) { return Tensor::FromProto(tensor)->ToDoubles().size() == columns; };
  return (!parameters.has_weight() || fits(parameters.weight())) && (!parameters.has_bias() || fits(parameters.bias()));
}

class ExactServer : public v1::Normalizer::Service {
 public:
  std::vector<v1::NormalizeRequest> requests;
  v1::Rounding rounding = v1::ROUNDING_NEAREST;

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeResponse* response) override {
    response->mutable_limits()->set_max_message_bytes(1 << 20);
    return grpc::Status::OK;
  }

  grpc::Status Normalize(grpc::ServerContext*, const v1::NormalizeRequest* request,
                         v1::NormalizeResponse* response) override {
    requests.push_back(*request);
    const Tensor x = *Tensor::FromProto(request->x());
    v1::Output& output = *response->add_outputs();
    output.set_kind(request->outputs(0).kind());
    std::vector<double> values = x.ToDoubles();
    if (request->has_residual()) {
      const std::vector<double> residual = Tensor::FromProto(request->residual().tensor())->ToDoubles();
      for (size_t i = 0; i < values.size(); ++i) values[i] += residual[i];
    }
    if (output.kind() == v1::OUTPUT_KIND_Y) {
      const bool over_all = request->spec().rms_norm().axes_size() == static_cast<int>(x.shape.size());
      const auto columns = static_cast<size_t>(over_all ? x.elements() : x.shape.back());
      if (!request->spec().has_rms_norm() || !Fits(request->parameters(), columns)) {
        return {grpc::StatusCode::INVALID_ARGUMENT, "not of this server"};
      }
      values = RmsNorm(values, columns, request->spec().rms_norm().eps());
      ApplyAffine(request->parameters(), columns, values);
    }
    *output.mutable_tensor() = Tensor::Rounded(x.dtype, x.shape, values).ToProto();
    response->mutable_applied()->set_method("rms_norm");
    response->mutable_applied()->set_rounding(rounding);
    return grpc::Status::OK;
  }
};

class VerifyTest : public testing::Test {
 protected:
  VerifyTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("verify_test.") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(std::sin(1.0 + static_cast<double>(i)) + 2);
  }
  ~VerifyTest() override {
    server_->Shutdown(std::chrono::system_clock::now());
    std::filesystem::remove_all(folder_);
  }

  // Saves x and a candidate of `dtype`: the rounded result, moved by `ulps` ulps of [1, 2) at index 5.
  void Save(DType dtype, double ulps) {
    const std::vector<double> x = Tensor::Rounded(dtype, {4, 8}, x_).ToDoubles();
    std::vector<double> y = Tensor::Rounded(dtype, {4, 8}, RmsNorm(x, 8)).ToDoubles();
    const int precision = dtype == v1::DTYPE_F16 ? 11 : dtype == v1::DTYPE_BF16 ? 8 : dtype == v1::DTYPE_F32 ? 24 : 53;
    y[5] += ulps * std::ldexp(1.0, std::ilogb(y[5]) - precision + 1);
    ASSERT_TRUE(SaveTensor(Path("x.npy"), Tensor::Rounded(dtype, {4, 8}, x), {.raw_bf16 = true}).ok());
    ASSERT_TRUE(SaveTensor(Path("y.npy"), Tensor::Rounded(dtype, {4, 8}, y), {.raw_bf16 = true}).ok());
  }

  struct Ran {
    int code;
    std::string out, err;
  };
  Ran Verify(std::vector<std::string> flags, const std::string& candidate = "y.npy", const std::string& x = "x.npy") {
    std::vector<std::string> arguments = {"verify",
                                          "rms-norm",
                                          Path(x),
                                          "--with",
                                          Path(candidate),
                                          "--eps=0",
                                          absl::StrCat("--server=127.0.0.1:", port_)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    std::ostringstream out, err;
    const int code = RunNormctl(arguments, {out, err, 80, false});
    return {code, out.str(), err.str()};
  }
  nlohmann::json VerifyJson(std::vector<std::string> flags, int code) {
    flags.emplace_back("--json");
    const Ran ran = Verify(flags);
    EXPECT_EQ(ran.code, code) << ran.out << ran.err;
    return nlohmann::json::parse(ran.out, nullptr, false);
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  std::vector<double> x_ = std::vector<double>(32);
  ExactServer service_;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::filesystem::path folder_;
};

TEST_F(VerifyTest, AResultThatIsRoundedOncePasses) {
  for (const DType dtype : {v1::DTYPE_F32, v1::DTYPE_F16, v1::DTYPE_BF16, v1::DTYPE_F64}) {
    Save(dtype, 0);
    const nlohmann::json json = VerifyJson({"--dtype", std::string(DTypeName(dtype)), "--max-ulp", "0.5"}, kExitOk);
    EXPECT_EQ(json["passed"], true);
    EXPECT_EQ(json["dtype"], std::string(DTypeName(dtype)));
    EXPECT_EQ(json["correctly_rounded"], 32);
    EXPECT_EQ(json["nearest"]["elements"], 32);
    EXPECT_EQ(json["nearest"]["undecided"], 0);
    EXPECT_LE(json["ulps"]["max"].get<double>(), 0.5);
    EXPECT_EQ(service_.requests.back().x().dtype(), v1::DTYPE_F64);
    EXPECT_EQ(service_.requests.back().precision(), v1::PRECISION_EXACT);
  }
}

TEST_F(VerifyTest, APlantedErrorIsFoundWhereItIs) {
  for (const DType dtype : {v1::DTYPE_F32, v1::DTYPE_F16, v1::DTYPE_BF16, v1::DTYPE_F64}) {
    Save(dtype, 3);
    const nlohmann::json json = VerifyJson({"--dtype", std::string(DTypeName(dtype))}, kExitError);
    EXPECT_EQ(json["passed"], false);
    EXPECT_EQ(json["correctly_rounded"], 31);
    EXPECT_EQ(json["nearest"]["elements"], 31);
    EXPECT_NEAR(json["ulps"]["max"].get<double>(), 3, 0.5);
    EXPECT_EQ(json["worst"][0]["index"], (std::vector<int64_t>{0, 5}));
    EXPECT_EQ(json["worst"][0]["ulps"], json["ulps"]["max"]);
    EXPECT_EQ(VerifyJson({"--dtype", std::string(DTypeName(dtype)), "--max-ulp=3.5"}, kExitOk)["passed"], true);
  }
}

TEST_F(VerifyTest, PrintsLinesForPeople) {
  Save(v1::DTYPE_F32, -300);
  const Ran ran = Verify({});
  EXPECT_EQ(ran.code, kExitError);
  EXPECT_NE(ran.out.find("32: 31 correctly rounded, 0 within 1 ulp, 0 within 2, 1 above"), std::string::npos)
      << ran.out;
  EXPECT_NE(ran.out.find("nearest   31 of 32 (96.88 %) are the nearest f32\n"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("[0,5]"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("FAILED: the largest error, 300"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.err, "");  // it is said once
  EXPECT_NE(Verify({"--json"}).err.find("is above 1"), std::string::npos);
}

TEST_F(VerifyTest, SaysWhereTheAnswerNeedNotBeTheNearest) {
  Save(v1::DTYPE_F64, 0);
  const std::string claim = "are the nearest f64";
  EXPECT_NE(Verify({}).out.find(claim), std::string::npos);
  service_.rounding = v1::ROUNDING_BOUNDED;
  const Ran bounded = Verify({});
  EXPECT_NE(bounded.out.find("exact answer in f64, bounded (numerics"), std::string::npos) << bounded.out;
  EXPECT_EQ(bounded.out.find(claim), std::string::npos) << bounded.out;
  service_.rounding = v1::ROUNDING_UNSPECIFIED;
  const Ran older = Verify({});
  EXPECT_NE(older.out.find("exact answer in f64, rounding not said (numerics"), std::string::npos) << older.out;
  EXPECT_EQ(older.out.find(claim), std::string::npos) << older.out;
}

TEST_F(VerifyTest, ANanWhereThereIsNoneFailsWhateverTheLimit) {
  Save(v1::DTYPE_F32, 0);
  std::vector<double> y = RmsNorm(x_, 8);
  y[9] = std::nan("");
  ASSERT_TRUE(SaveTensor(Path("y.npy"), Tensor::Rounded(v1::DTYPE_F32, {4, 8}, y), {}).ok());
  const nlohmann::json json = VerifyJson({"--max-ulp=1e9"}, kExitError);
  EXPECT_EQ(json["mismatches"], 1);
  EXPECT_EQ(json["worst"][0]["candidate"], "NaN");
  EXPECT_EQ(json["worst"][0]["ulps"], "Infinity");
}

TEST_F(VerifyTest, ACandidateInAWiderFileIsNotRounded) {
  Save(v1::DTYPE_BF16, 0);
  std::vector<double> y = RmsNorm(Tensor::Rounded(v1::DTYPE_BF16, {4, 8}, x_).ToDoubles(), 8);
  for (double& value : y) value *= 1 + 0x1p-9;  // about a quarter to half an ulp of bf16
  ASSERT_TRUE(SaveTensor(Path("y.npy"), Tensor::Rounded(v1::DTYPE_F32, {4, 8}, y), {}).ok());
  const nlohmann::json json = VerifyJson({"--dtype", "bf16"}, kExitOk);
  EXPECT_EQ(json["dtype"], "bf16");
  EXPECT_GT(json["ulps"]["mean"].get<double>(), 0.24);
  EXPECT_LT(json["ulps"]["mean"].get<double>(), 0.5);
}

TEST_F(VerifyTest, AResidualIsAddedAsItsRoundingSays) {
  Save(v1::DTYPE_F32, 0);
  const std::vector<std::string> residual = {"--residual", Path("x.npy"), "--max-ulp=1e9"};
  VerifyJson(residual, kExitOk);
  ASSERT_EQ(service_.requests.size(), 2u);  // h in the dtype of x, then y of h
  EXPECT_EQ(service_.requests[0].outputs(0).kind(), v1::OUTPUT_KIND_H);
  EXPECT_EQ(service_.requests[0].x().dtype(), v1::DTYPE_F32);
  EXPECT_FALSE(service_.requests[1].has_residual());
  std::vector<std::string> wide = residual;
  wide.emplace_back("--residual-rounding=keep-wide");
  VerifyJson(wide, kExitOk);
  ASSERT_EQ(service_.requests.size(), 3u);
  EXPECT_EQ(service_.requests[2].residual().tensor().dtype(), v1::DTYPE_F64);
}

TEST_F(VerifyTest, TheFirstLineOfACsvIsWhatTheFlagSays) {
  std::ofstream(Path("x.csv")) << "1,2,3,4,5,6,7,8\n8,7,6,5,4,3,2,1\n";
  const std::vector<double> y = RmsNorm({8, 7, 6, 5, 4, 3, 2, 1}, 8);
  ASSERT_TRUE(SaveTensor(Path("y.npy"), Tensor::Rounded(v1::DTYPE_F32, {1, 8}, y), {}).ok());
  const Ran ran = Verify({"--header", "--json"}, "y.npy", "x.csv");
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(nlohmann::json::parse(ran.out, nullptr, false)["shape"], (std::vector<int64_t>{1, 8})) << ran.out;
  EXPECT_EQ(Verify({}, "y.npy", "x.csv").code, kExitError);  // two rows
}

// The example of LLaMA's order in f16, with what each order gives.
TEST_F(VerifyTest, TheCastOrderIsAPartOfTheAnswer) {
  const std::vector<double> x = {-2.02, -0.23, -0.87, 3.32, 0.23, -0.35}, weight = {1.3, 0.7, 1.1, 2.9, 0.3, 1.7};
  const std::vector<double> cast_first = {-1.603515625, -0.098388671875,   -0.583984375,
                                          5.87890625,   0.042144775390625, -0.363525390625};
  const std::vector<double> affine_first = {-1.603515625, -0.09832763671875, -0.58447265625,
                                            5.8828125,    0.042144775390625, -0.363525390625};
  const auto save = [&](const char* name, std::vector<int64_t> shape, const std::vector<double>& values) {
    ASSERT_TRUE(SaveTensor(Path(name), Tensor::Rounded(v1::DTYPE_F16, std::move(shape), values), {}).ok());
  };
  save("x.npy", {1, 6}, x);
  save("w.npy", {6}, weight);
  save("cast.npy", {1, 6}, cast_first);
  save("affine.npy", {1, 6}, affine_first);
  const std::vector<std::string> flags = {"--eps=1e-5", "--weight", Path("w.npy"), "--max-ulp=0.5"};
  std::vector<std::string> llama = flags;
  llama.emplace_back("--cast-order=cast-then-affine");
  EXPECT_EQ(Verify(flags, "affine.npy").code, kExitOk);
  EXPECT_EQ(Verify(flags, "cast.npy").code, kExitError);
  const Ran own = Verify(llama, "cast.npy");
  EXPECT_EQ(own.code, kExitOk) << own.out;
  EXPECT_NE(own.out.find("exact answer in f64, cast then affine"), std::string::npos) << own.out;
  EXPECT_NE(own.out.find("6 of 6 (100 %) are the nearest f16\n"), std::string::npos) << own.out;
  const Ran other = Verify(llama, "affine.npy");
  EXPECT_NE(other.out.find("3 of 6 (50 %) are the nearest f16\n"), std::string::npos) << other.out;
  EXPECT_EQ(Verify(llama, "affine.npy").code, kExitError);
}

TEST_F(VerifyTest, TheCastOrderKeepsBiasAndOffset) {
  // 1 and -1 are normalised to themselves; then 1 * (1 + 2^-10 + 1) is rounded to f16, a tie that goes to 2.
  const auto save = [&](const char* name, std::vector<int64_t> shape, DType dtype, const std::vector<double>& values) {
    ASSERT_TRUE(SaveTensor(Path(name), Tensor::Rounded(dtype, std::move(shape), values), {}).ok());
  };
  save("x.npy", {1, 2}, v1::DTYPE_F16, {1, -1});
  save("w.npy", {2}, v1::DTYPE_F32, {1 + 0x1p-10, 1 + 0x1p-10});
  save("b.npy", {2}, v1::DTYPE_F16, {-2, 2});
  save("y.npy", {1, 2}, v1::DTYPE_F16, {0, 0});
  const Ran ran = Verify({"--weight", Path("w.npy"), "--bias", Path("b.npy"), "--weight-offset=1", "--max-ulp=0",
                          "--cast-order=cast-then-affine"});
  EXPECT_EQ(ran.code, kExitOk) << ran.out << ran.err;
}

TEST_F(VerifyTest, NothingToCompareIsNoSuccess) {
  Save(v1::DTYPE_F32, 0);
  for (const char* name : {"x.npy", "y.npy"}) {
    ASSERT_TRUE(SaveTensor(Path(name), Tensor::F32({0, 8}, {}), {}).ok());
  }
  const Ran ran = Verify({});
  EXPECT_EQ(ran.code, kExitError) << ran.out;
  EXPECT_NE(ran.err.find("x has no elements to compare"), std::string::npos) << ran.err;
}

TEST_F(VerifyTest, FindsThatOnePlusTheWeightWasRounded) {
  Save(v1::DTYPE_F16, 0);
  const std::vector<double> x = Tensor::Rounded(v1::DTYPE_F16, {4, 8}, x_).ToDoubles();
  std::vector<double> w(8), y = RmsNorm(x, 8);
  for (size_t i = 0; i < w.size(); ++i) w[i] = 0.1 * std::sin(1.0 + static_cast<double>(i));
  const Tensor weight = Tensor::Rounded(v1::DTYPE_F16, {8}, w);
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] *= Tensor::Rounded(v1::DTYPE_F16, {1}, {1 + weight.ToDoubles()[i % 8]}).ToDoubles()[0];
  }
  ASSERT_TRUE(SaveTensor(Path("w.npy"), weight, {}).ok());
  ASSERT_TRUE(SaveTensor(Path("y.npy"), Tensor::Rounded(v1::DTYPE_F16, {4, 8}, y), {}).ok());
  const auto said = VerifyJson({"--weight", Path("w.npy"), "--weight-offset=1", "--max-ulp=0.5", "--find-variant"}, 1);
  const auto& best = said["variants"][0];
  EXPECT_EQ(best["differences"], "1 + w rounded");
  EXPECT_EQ(best["rounds_weight"], true);
  EXPECT_EQ(best["nearest"], 32);
  EXPECT_EQ(best["fits"], true);
}

TEST_F(VerifyTest, FindsStatisticsOfAllAxesBesideAWeightOfTheLast) {
  Save(v1::DTYPE_F32, 0);
  const std::vector<double> x = Tensor::Rounded(v1::DTYPE_F32, {4, 8}, x_).ToDoubles();
  std::vector<double> w(8), y = RmsNorm(x, 32);
  for (size_t i = 0; i < w.size(); ++i) w[i] = 1 + 0.125 * static_cast<double>(i);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= w[i % 8];
  ASSERT_TRUE(SaveTensor(Path("w.npy"), Tensor::Rounded(v1::DTYPE_F32, {8}, w), {}).ok());
  ASSERT_TRUE(SaveTensor(Path("y.npy"), Tensor::Rounded(v1::DTYPE_F32, {4, 8}, y), {}).ok());
  const auto said = VerifyJson({"--weight", Path("w.npy"), "--find-variant"}, 1);
  EXPECT_EQ(said["variants"][0]["differences"], "axes 0,1");
  EXPECT_EQ(said["variants"][0]["nearest"], 32);
}

TEST_F(VerifyTest, TheVerdictIsInColour) {
  Save(v1::DTYPE_F32, 0);
  EXPECT_NE(Verify({"--color=always"}).out.find("\x1b[1mok:\x1b[0m every error"), std::string::npos);
  Save(v1::DTYPE_F32, 3);
  EXPECT_NE(Verify({"--color=always"}).out.find("\x1b[1;31mFAILED:\x1b[0m the largest"), std::string::npos);
}

TEST_F(VerifyTest, SaysWhatIsWrongWithItsArguments) {
  Save(v1::DTYPE_F32, 0);
  for (const auto& [flags, named] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--max-ulp=-1"}, "--max-ulp is -1; it must be a finite number"},
           {{"--floor=inf"}, "--floor is inf; it must be a finite number"},
           {{"--worst=-1"}, "--worst is -1; it must be 0 to 1000"},
           {{"--session=a", "--training"}, "verify leaves the session as it is"},
           {{"--groups=2"}, "--groups does not apply to rms_norm"}}) {
    const Ran ran = Verify(flags);
    EXPECT_EQ(ran.code, kExitUsage) << ran.err;
    EXPECT_NE(ran.err.find(named), std::string::npos) << ran.err;
  }
  std::ostringstream out, err;
  EXPECT_EQ(RunNormctl({"verify", "rms-nrm", Path("x.npy"), "--with", Path("y.npy")}, {out, err, 80, false}),
            kExitUsage);
  EXPECT_NE(err.str().find("unknown method rms-nrm: did you mean rms-norm?"), std::string::npos) << err.str();
  ASSERT_TRUE(SaveTensor(Path("small.npy"), Tensor::F32({1, 2}, {1, 2}), {}).ok());
  const Ran shape = Verify({}, "small.npy");
  EXPECT_EQ(shape.code, kExitError);
  EXPECT_NE(shape.err.find("has shape [1, 2], but x has [4, 8]"), std::string::npos) << shape.err;
}

}  // namespace
}  // namespace normd::client

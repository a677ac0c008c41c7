#include "client/normctl/normalize_request.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "client/cli/tensor_file.h"

namespace normd::client {
namespace {

class NormalizeRequest : public testing::Test {
 protected:
  NormalizeRequest() {
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("normalize_request_test.") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    x_ = folder_ / "x.npy";
    EXPECT_TRUE(SaveTensor(x_, Tensor::F32({1, 2}, {3, 4}), {}).ok());
  }
  ~NormalizeRequest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<NormalizeInput> Build(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {x_, "-o", "y.npy"});
    return BuildAll(arguments);
  }

  static absl::StatusOr<NormalizeInput> BuildAll(const std::vector<std::string>& arguments) {
    CommandSpec spec;
    spec.max_operands = 1;
    spec.flags = Join(NormalizeFlags(""), ServerFlags());
    const absl::StatusOr<ParsedArgs> args = ParseArgs(spec, arguments);
    return args.ok() ? BuildNormalizeInput(*args) : args.status();
  }

  std::string Path(const char* name) const { return folder_ / name; }

  std::string x_;

 private:
  std::filesystem::path folder_;
};

TEST_F(NormalizeRequest, ShowsYWhereNoFileIsNamed) {
  const auto input = BuildAll({x_});
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_TRUE(input->places.empty());
  EXPECT_TRUE(input->request.outputs().empty());  // y is the default
}

TEST_F(NormalizeRequest, NamesThePlaceAndTheFormatOfEachResult) {
  const auto input = BuildAll({x_, "-o", "-", "--mean", "m.csv"});
  ASSERT_TRUE(input.ok()) << input.status();
  ASSERT_EQ(input->places.size(), 2u);
  EXPECT_EQ(input->places[0].kind, v1::OUTPUT_KIND_Y);
  EXPECT_EQ(input->places[0].format, FileFormat::kNpy);  // as x
  EXPECT_EQ(input->places[1].format, FileFormat::kCsv);
  EXPECT_EQ(BuildAll({x_, "-o", "-", "--format", "csv"})->places[0].format, FileFormat::kCsv);
}

TEST_F(NormalizeRequest, KeepsTheHeaderOfATable) {
  ASSERT_TRUE(WriteFile(Path("x.csv"), "a,b\n1,2\n").ok());
  EXPECT_EQ(BuildAll({Path("x.csv")})->format.header, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(BuildAll({Path("x.csv"), "--no-header"}).ok());
  ASSERT_TRUE(WriteFile(Path("years.csv"), "2019,2020\n1,2\n").ok());
  EXPECT_EQ(BuildAll({Path("years.csv"), "--header"})->request.x().shape(0), 1);
  EXPECT_EQ(BuildAll({Path("years.csv")})->request.x().shape(0), 2);
  EXPECT_TRUE(IsUsageError(BuildAll({Path("years.csv"), "--header", "--no-header"}).status()));
}

TEST_F(NormalizeRequest, ReadsEveryTableAsTheFlagsSay) {
  ASSERT_TRUE(WriteFile(Path("x.csv"), "A;B\n1,5;2,5\n").ok());
  ASSERT_TRUE(WriteFile(Path("r.csv"), "0,5;0,25\n").ok());
  EXPECT_FALSE(BuildAll({Path("x.csv")}).ok());
  const auto input = BuildAll({Path("x.csv"), "--residual", Path("r.csv"), "--mask", Path("r.csv"), "--decimal", ","});
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_EQ(Tensor::FromProto(input->request.x())->ToDoubles(), (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(Tensor::FromProto(input->request.residual().tensor())->ToDoubles(), (std::vector<double>{0.5, 0.25}));
  EXPECT_TRUE(input->warnings.empty());
}

TEST_F(NormalizeRequest, WarnsOfATableThatCanBeReadInTwoWays) {
  ASSERT_TRUE(WriteFile(Path("x.csv"), "1,5\n2,5\n").ok());
  const auto input = BuildAll({Path("x.csv")});
  ASSERT_TRUE(input.ok()) << input.status();
  ASSERT_EQ(input->warnings.size(), 1u);
  EXPECT_NE(input->warnings[0].find("x.csv: every line is two whole numbers"), std::string::npos) << input->warnings[0];
  EXPECT_TRUE(BuildAll({Path("x.csv"), "--delimiter", ","})->warnings.empty());
  EXPECT_EQ(BuildAll({Path("x.csv"), "--decimal", ","})->request.x().shape(1), 1);
}

TEST_F(NormalizeRequest, RefusesATableOfATensorThatIsNone) {
  ASSERT_TRUE(SaveTensor(Path("cube.npy"), Tensor::F32({1, 1, 2}, {3, 4}), {}).ok());
  const absl::Status status = BuildAll({Path("cube.npy"), "-o", "y.csv"}).status();
  EXPECT_EQ(status.message(), "y.csv: x has shape [1, 1, 2], and a .csv is a table of rows and columns: write .npy");
  EXPECT_FALSE(BuildAll({Path("cube.npy"), "-o", "-", "--format", "csv"}).ok());
  EXPECT_TRUE(BuildAll({Path("cube.npy"), "-o", "y.npy", "--mean", "m.csv"}).ok());
}

TEST_F(NormalizeRequest, RefusesAPlaceThatCannotBeWritten) {
  for (const char* flag : {"-o", "--mean"}) {
    const absl::Status status = BuildAll({x_, "--session", "bn", "--training", flag, "/nonexistent/y.npy"}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(status.message(), "/nonexistent/y.npy: cannot create: No such file or directory");
  }
}

TEST_F(NormalizeRequest, RefusesWhatStandardStreamsCannotDo) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"-o", "-", "--mean", "-"},
                                                                     {"-o", "-", "--json"},
                                                                     {"--json"},
                                                                     {"-o", "y.npy", "--format", "csv"},
                                                                     {"-o", "-", "--format", "xml"},
                                                                     {"-o", "y.txt"}}) {
    std::vector<std::string> all = arguments;
    all.insert(all.begin(), x_);
    EXPECT_TRUE(IsUsageError(BuildAll(all).status())) << testing::PrintToString(arguments);
  }
  EXPECT_TRUE(IsUsageError(BuildAll({"-", "-o", "y.npy", "--mask", "-"}).status()));
}

TEST_F(NormalizeRequest, RefusesANumberWithoutAxes) {
  ASSERT_TRUE(SaveTensor(Path("one.npy"), Tensor::F32({}, {3}), {}).ok());
  EXPECT_EQ(BuildAll({Path("one.npy")}).status().message(), "x has rank 0 (one number); 1 to 8 are possible");
}

TEST_F(NormalizeRequest, CarriesWhatIsSaidOfTheSession) {
  const auto input = Build({"--session", "bn", "--max-staleness", "1.5s", "--expected-version", "7", "--step-client",
                            "a", "--step-sequence", "9"});
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_EQ(input->request.max_staleness().seconds(), 1);
  EXPECT_EQ(input->request.max_staleness().nanos(), 500000000);
  EXPECT_EQ(input->request.expected_version(), 7u);
  EXPECT_EQ(input->request.step().client_id(), "a");
  EXPECT_EQ(input->request.step().sequence(), 9u);
  const auto plain = Build({"--session", "bn"});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->request.has_max_staleness());
  EXPECT_FALSE(plain->request.has_step());
  EXPECT_EQ(Build({"--session", "bn", "--max-staleness", "inf"})->request.max_staleness().seconds(), 315576000000);
}

TEST_F(NormalizeRequest, RefusesWhatMakesNoSense) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"--max-staleness", "1s"},  // there is no session to be stale
                                             {"--session", "bn", "--max-staleness", "soon"},
                                             {"--session", "bn", "--max-staleness", "-1s"},
                                             {"--session", "bn", "--expected-version", "-1"},
                                             {"--session", "bn", "--step-client", "a", "--step-sequence", "-1"},
                                             {"--session", "bn", "--step-sequence", "1"}}) {
    EXPECT_TRUE(IsUsageError(Build(arguments).status())) << testing::PrintToString(arguments);
  }
}

}  // namespace
}  // namespace normd::client

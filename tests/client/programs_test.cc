// normctl and normload as functions: usage, help and exit codes. No server is needed, or there.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "client/cli/csv.h"
#include "client/normctl/commands.h"
#include "client/normctl/demo.h"
#include "client/normctl/demo_data.h"
#include "client/normload/normload.h"

namespace normd::client {
namespace {

struct Ran {
  int code;
  std::string out, err;
};

Ran Run(int (*program)(absl::Span<const std::string>, const Terminal&), const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int code = program(arguments, {out, err, 100, false});
  return {code, out.str(), err.str()};
}
Ran Normctl(const std::vector<std::string>& arguments) { return Run(&RunNormctl, arguments); }
Ran Normload(const std::vector<std::string>& arguments) { return Run(&RunNormload, arguments); }

TEST(Normctl, HelpNamesEveryCommandAndEveryCommandHasHelp) {
  const Ran help = Normctl({"--help"});
  EXPECT_EQ(help.code, kExitOk);
  for (const Command& command : AllCommands()) {
    EXPECT_NE(help.out.find("  " + command.spec.name + " "), std::string::npos) << command.spec.name;
    std::vector<std::string> words;
    std::istringstream stream(command.spec.name);
    for (std::string word; stream >> word;) words.push_back(word);
    words.push_back("--help");
    const Ran ran = Normctl(words);
    EXPECT_EQ(ran.code, kExitOk) << command.spec.name;
    EXPECT_EQ(ran.out.find("Usage: normctl " + command.spec.name), 0u) << ran.out;
    EXPECT_NE(ran.out.find("--server"), std::string::npos);
  }
}

TEST(Normctl, WrongUsageIsTwo) {
  EXPECT_EQ(Normctl({}).code, kExitUsage);
  EXPECT_EQ(Normctl({"soft-norm", "x.npy"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"layer-norm"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"layer-norm", "in.npy"}).code, kExitUsage);  // no output
  EXPECT_EQ(Normctl({"layer-norm", "in.npy", "-o", "out.txt"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"layer-norm", "in.npy", "-o", "out.npy", "--groups", "2"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"layer-norm", "in.npy", "-o", "out.npy", "--dtype", "int8"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"layer-norm", "in.npy", "-o", "out.npy", "--step-client", "a"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "steal", "a"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "update", "a"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "create", "batch-norm", "--label", "x"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "commit", "a"}).code, kExitUsage);  // no moments
  EXPECT_EQ(Normctl({"session", "commit", "a", "m.json", "--step-sequence", "1"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "commit", "a", "m.json", "--expected-version", "-1"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "export", "a"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "export", "a", "-o", "a.bin", "--f32"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "export", "a", "-o", "a.bin", "--format", "zip"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "import", "a.safetensors", "--format", "record", "--prefix", "x"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "import", "a.bin", "--method", "batch-norm"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "watch", "a", "--count", "0"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"session", "watch", "a", "--interval", "1ms"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"demo", "--only", "nothing"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"health", "--deadline", "soon"}).code, kExitUsage);
}

TEST(Normctl, UnderscoresAreAcceptedInMethodNames) {
  EXPECT_EQ(Normctl({"layer_norm", "--help"}).code, kExitOk);
  EXPECT_EQ(Normctl({"p_rms_norm", "--help"}).code, kExitOk);
}

TEST(Normctl, SessionsIsUnderstoodAsSession) {
  const Ran ran = Normctl({"sessions", "watch", "--help"});
  EXPECT_EQ(ran.code, kExitOk);
  EXPECT_EQ(ran.out.find("Usage: normctl session watch NAME"), 0u) << ran.out;
  const Ran group = Normctl({"sessions", "--help"});
  EXPECT_EQ(group.code, kExitOk);
  for (const char* name :
       {"create", "get", "list", "update", "reset", "fork", "delete", "commit", "export", "import", "watch"}) {
    EXPECT_NE(group.out.find(std::string("session ") + name), std::string::npos) << name;
  }
}

TEST(Normctl, SaysThatStepIdsAndVersionAreNoPartOfAStateDict) {
  for (const char* command : {"export", "import"}) {
    EXPECT_NE(Normctl({"session", command, "--help"}).out.find("step ids and version are not part of a\nstate_dict"),
              std::string::npos);
  }
}

TEST(Normctl, MissingFilesAndServersAreOne) {
  const Ran file = Normctl({"layer-norm", "/nonexistent/in.npy", "-o", "out.npy"});
  EXPECT_EQ(file.code, kExitError);
  EXPECT_NE(file.err.find("/nonexistent/in.npy: cannot open"), std::string::npos) << file.err;
  const Ran server = Normctl({"health", "--server", "unix:/nonexistent/normd.sock"});
  EXPECT_EQ(server.code, kExitError);
  EXPECT_NE(server.err.find("UNAVAILABLE"), std::string::npos) << server.err;
}

TEST(Normctl, ErrorsAreJsonWhenAskedFor) {
  const Ran ran = Normctl({"health", "--json", "--server", "unix:/nonexistent/normd.sock"});
  const nlohmann::json json = nlohmann::json::parse(ran.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << ran.out;
  EXPECT_EQ(json["error"]["code"], "UNAVAILABLE");
}

TEST(Program, AReportIsOneJsonDocument) {
  std::ostringstream out, err;
  const Terminal terminal{out, err, 100, false};
  EXPECT_EQ(Finish(ReportedError("2 comparisons failed"), "normctl demo", true, terminal), kExitError);
  EXPECT_EQ(out.str(), "");
  EXPECT_NE(err.str().find("2 comparisons failed"), std::string::npos);
  EXPECT_EQ(Finish(absl::NotFoundError("sessions/a"), "normctl", true, terminal), kExitError);
  EXPECT_NE(out.str().find("NOT_FOUND"), std::string::npos);
}

TEST(Normload, RefusesOtherMachines) {
  for (const char* local : {"127.0.0.1:8001", "localhost:1", "[::1]:8001", "unix:/run/normd.sock", "127.8.9.10:80"}) {
    EXPECT_TRUE(IsLocal(local)) << local;
  }
  for (const char* remote :
       {"10.0.0.1:8001", "example.org:80", "127.example.org:80", "[2001:db8::1]:80", "dns:///x:1"}) {
    EXPECT_FALSE(IsLocal(remote)) << remote;
  }
  const Ran ran = Normload({"--server", "192.0.2.1:8001"});
  EXPECT_EQ(ran.code, kExitUsage);
  EXPECT_NE(ran.err.find("--allow-remote"), std::string::npos) << ran.err;
}

absl::StatusOr<LoadOptions> Options(std::vector<std::string> arguments) {
  const absl::StatusOr<ParsedArgs> args = ParseArgs(NormloadSpec(), arguments);
  if (!args.ok()) return args.status();
  return MakeLoadOptions(*args);
}

TEST(Normload, MakesTheRequest) {
  const auto options = Options({"--method",
                                "group-norm",
                                "--groups",
                                "4",
                                "--layout",
                                "channels-first",
                                "--shape",
                                "2x8x3x3",
                                "--dtype",
                                "bf16",
                                "-t",
                                "batch",
                                "--batch-items",
                                "3",
                                "-c",
                                "5",
                                "-n",
                                "7",
                                "-d",
                                "2s"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->request.spec().group_norm().num_groups(), 4);
  EXPECT_EQ(options->request.x().data().size(), 2u * 8 * 9 * 2);
  EXPECT_EQ(options->transport, Transport::kBatch);
  EXPECT_EQ(options->batch_items, 3);
  EXPECT_EQ(options->concurrency, 5);
  EXPECT_EQ(options->requests, 7);
  EXPECT_EQ(options->duration, absl::Seconds(2));
  EXPECT_EQ(Options({})->request.spec().layer_norm().normalized_shape(0), 768);
}

TEST(Normload, RefusesWhatMakesNoSense) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"--shape", "1000000x1000000x1000000x1000000"},
                                                                     {"--shape", "-1x2"},
                                                                     {"--shape", "ax2"},
                                                                     {"--dtype", "i8"},
                                                                     {"--method", "nonorm"},
                                                                     {"--transport", "pigeon"},
                                                                     {"--concurrency", "0"},
                                                                     {"--requests", "-1"},
                                                                     {"--duration", "long"}}) {
    EXPECT_TRUE(IsUsageError(Options(arguments).status())) << arguments[0] << " " << arguments[1];
  }
}

TEST(Demo, CarriesItsData) {
  const nlohmann::json examples = nlohmann::json::parse(std::string(WorkedExamplesJson()), nullptr, false);
  ASSERT_TRUE(examples.is_array());
  EXPECT_EQ(examples.size(), 43u);
  const absl::StatusOr<CsvTable> iris = ParseCsv(IrisCsv());
  ASSERT_TRUE(iris.ok()) << iris.status();
  EXPECT_EQ(iris->rows, 150);
  EXPECT_EQ(iris->columns, 4);
}

TEST(Demo, CountsUlps) {
  EXPECT_EQ(UlpDistance(1.0f, 1.0f), 0);
  EXPECT_EQ(UlpDistance(0.0f, -0.0f), 0);
  EXPECT_EQ(UlpDistance(1.0f, std::nextafterf(1.0f, 2.0f)), 1);
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(UlpDistance(tiny, -tiny), 2);
  EXPECT_EQ(UlpDistance(NAN, NAN), 0);
  EXPECT_GT(UlpDistance(NAN, 1.0f), 1000000);
}

}  // namespace
}  // namespace normd::client

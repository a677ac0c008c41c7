// normctl and normload as functions: usage, help and exit codes. No server is needed, or there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "client/cli/spec_flags.h"
#include "client/cpp/local_server.h"
#include "client/normctl/commands.h"
#include "client/normctl/demo.h"
#include "client/normload/normload.h"
#include "client/normload/options.h"

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
    const bool asks_a_server = command.spec.name != "completion" && command.spec.name != "man";
    EXPECT_EQ(ran.out.find("--server") != std::string::npos, asks_a_server) << command.spec.name;
  }
}

TEST(Normctl, WrongUsageIsTwo) {
  EXPECT_EQ(Normctl({}).code, kExitUsage);
  EXPECT_EQ(Normctl({"soft-norm", "x.npy"}).code, kExitUsage);
  EXPECT_EQ(Normctl({"layer-norm"}).code, kExitUsage);
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

TEST(Normctl, AWordThatIsNoCommandIsAnsweredWithTheOneThatWasMeant) {
  for (const char* written : {"layernorm", "LayerNorm", "layer-nrm"}) {
    const Ran ran = Normctl({written, "x.npy", "-o", "y.npy"});
    EXPECT_EQ(ran.code, kExitUsage);
    EXPECT_EQ(ran.err,
              std::string("normctl: unknown command ") + written + ": did you mean layer-norm?\nTry --help.\n");
  }
  EXPECT_NE(Normctl({"sesion", "list"}).err.find("did you mean session?"), std::string::npos);
  EXPECT_NE(Normctl({"session", "crate"}).err.find("unknown command crate: did you mean create?"), std::string::npos);
  EXPECT_EQ(Normctl({"frobnicate"}).err, "normctl: unknown command frobnicate\nTry --help.\n");
}

TEST(Normctl, FlagsOfTheServerMayStandBeforeTheCommand) {
  const char* server = "--server=unix:/nonexistent/normd.sock";
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{server, "health"},
                                             {"health", server},
                                             {server, "session", "list"},
                                             {"session", server, "list", "--filter=", "--json"}}) {
    const Ran ran = Normctl(arguments);
    EXPECT_EQ(ran.code, kExitError) << ran.err;
    EXPECT_NE(ran.err.find("/nonexistent/normd.sock"), std::string::npos) << ran.err;
  }
  EXPECT_EQ(Normctl({"--json", server, "health"}).out.find("{"), 0u);
  EXPECT_EQ(Normctl({"--nope", "health"}).err, "normctl: unknown flag --nope\nTry --help.\n");
  EXPECT_EQ(Normctl({"--server"}).err, "normctl: --server needs TARGET\nTry --help.\n");
}

TEST(Normctl, HelpAndVersionAreWordsAndFlags) {
  const std::string all = Normctl({"--help"}).out;
  EXPECT_EQ(all.find("Usage: normctl COMMAND"), 0u) << all;
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{{"-h"}, {"help"}}) {
    EXPECT_EQ(Normctl(arguments).code, kExitOk);
    EXPECT_EQ(Normctl(arguments).out, all);
  }
  EXPECT_EQ(Normctl({"help", "layer_norm"}).out, Normctl({"layer-norm", "--help"}).out);
  EXPECT_EQ(Normctl({"help", "session", "create"}).out, Normctl({"session", "create", "-h"}).out);
  EXPECT_EQ(Normctl({"session"}).err.find("Usage: normctl session COMMAND"), 0u);
  for (const char* version : {"--version", "-V", "version"}) {
    const Ran ran = Normctl({version});
    EXPECT_EQ(ran.code, kExitOk);
    EXPECT_EQ(ran.out, "normctl " + ClientVersion() + "\n");
  }
  EXPECT_EQ(Normload({"-V"}).out, "normload " + ClientVersion() + "\n");
}

TEST(Normctl, SaysWhatTakesAStateDict) {
  for (const char* command : {"export", "import"}) {
    std::string help = Normctl({"session", command, "--help"}).out;
    std::replace(help.begin(), help.end(), '\n', ' ');
    EXPECT_NE(help.find("Session.state_dict() and load_state_dict()"), std::string::npos) << help;
  }
}

TEST(Normctl, RefusesToImportWhatNoExportWrote) {
  const std::string folder = testing::TempDir();
  const auto refused = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder + "/" + name) << bytes;
    const Ran ran = Normctl({"session", "import", folder + "/" + name, "--server", "unix:/nonexistent/normd.sock"});
    EXPECT_EQ(ran.code, kExitUsage) << ran.err;
    return ran.err;
  };
  EXPECT_NE(
      refused("in.npy", "\x93NUMPY...").find("in.npy: is a .npy tensor: session import reads what session export"),
      std::string::npos);
  EXPECT_NE(refused("a.bin", "PK..").find("a.bin: is no record"), std::string::npos);
  EXPECT_NE(refused("empty.bin", "").find("empty.bin: is no record"), std::string::npos);
  EXPECT_NE(
      refused("torch.bin", std::string("\x40\0\0\0\0\0\0\0{}", 10)).find("normd's Session.load_state_dict takes it"),
      std::string::npos);
}

TEST(Normctl, SaysWhatIsImportedInPlaceOfASession) {
  const std::string folder = testing::TempDir();
  const auto refused = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder + "/" + name) << bytes;
    const Ran ran = Normctl({"session", "import", folder + "/" + name, "--server", "unix:/nonexistent/n.sock"});
    EXPECT_EQ(ran.code, kExitUsage) << ran.err;
    return ran.err;
  };
  EXPECT_NE(refused("m.index.json", R"({"weight_map":{}})").find("the index of a sharded checkpoint"),
            std::string::npos);
  EXPECT_NE(refused("m.pt", "PK\x03\x04 m/data.pkl").find("a checkpoint of PyTorch (torch.save)"), std::string::npos);
  EXPECT_NE(refused("m.safetensors", "version https://git-lfs.github.com/spec/v1\n").find("Git LFS"),
            std::string::npos);
  EXPECT_NE(refused("m.h5", "\x89HDF\r\n\x1a\n").find("HDF5"), std::string::npos);
  EXPECT_NE(refused("m.npz", "PK\x03\x04 a.npy").find("is an .npz of NumPy"), std::string::npos);
  EXPECT_NE(refused("m.gguf", std::string("GGUF\3\0\0\0", 8)).find("GGUF"), std::string::npos);
}

TEST(Normctl, WritesNoRecordUnderTheNameOfAnotherFormat) {
  const auto err = [](const std::string& path) {
    return Normctl({"session", "export", "bn", "-o", path, "--server", "unix:/nonexistent/n.sock"}).err;
  };
  for (const char* name : {"bn.npz", "bn.pt", "bn.NPY", "bn.csv", "bn.h5", "bn.json", "bn.onnx", "bn.SAFETENSORS"}) {
    EXPECT_NE(err(name).find("a session is written as a record, which is no ."), std::string::npos) << err(name);
    EXPECT_NE(err(name).find(": name it bn.record"), std::string::npos) << err(name);
  }
  for (const char* name : {"bn.record", "bn", "bn.bin", "bn.pb"}) {
    EXPECT_EQ(err(name).find("a session is written as"), std::string::npos) << err(name);
  }
}

TEST(Normctl, ManAndCompletionKnowWhatTheyAreAskedFor) {
  EXPECT_NE(Normctl({"man", "layr-norm"}).err.find("did you mean layer-norm?"), std::string::npos);
  EXPECT_NE(Normctl({"completion", "tcsh"}).err.find("must be bash, zsh or fish"), std::string::npos);
  EXPECT_EQ(Normctl({"man", "session", "create"}).out.find(".TH NORMCTL\\-SESSION\\-CREATE 1"), 0u);
}

TEST(Normctl, MissingFilesAndServersAreOne) {
  const Ran file = Normctl({"layer-norm", "/nonexistent/in.npy", "-o", "out.npy"});
  EXPECT_EQ(file.code, kExitError);
  EXPECT_NE(file.err.find("/nonexistent/in.npy: cannot open"), std::string::npos) << file.err;
  const Ran server = Normctl({"health", "--server", "unix:/nonexistent/normd.sock"});
  EXPECT_EQ(server.code, kExitError);
  EXPECT_EQ(server.err.find("normctl health: cannot reach normd at unix:/nonexistent/normd.sock ("), 0u) << server.err;
}

TEST(Normctl, ErrorsAreJsonWhenAskedFor) {
  const Ran ran = Normctl({"health", "--json", "--server", "unix:/nonexistent/normd.sock"});
  const nlohmann::json json = nlohmann::json::parse(ran.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << ran.out;
  EXPECT_EQ(json["error"]["code"], "UNAVAILABLE");
  for (const Ran& misused :
       {Normctl({"health", "--json", "--sever=x"}), Normctl({"--json", "heath"}), Normload({"--nope", "--json"})}) {
    EXPECT_EQ(misused.code, kExitUsage);
    EXPECT_EQ(nlohmann::json::parse(misused.out, nullptr, false)["error"]["code"], "INVALID_ARGUMENT") << misused.out;
  }
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
       {"10.0.0.1:8001", "example.org:80", "127.example.org:80", "[2001:db8::1]:80", "dns:///x:1", "localhost.org:1"}) {
    EXPECT_FALSE(IsLocal(remote)) << remote;
  }
  const Ran ran = Normload({"--server", "192.0.2.1:8001"});
  EXPECT_EQ(ran.code, kExitUsage);
  EXPECT_NE(ran.err.find("--allow-remote"), std::string::npos) << ran.err;
}

absl::StatusOr<NormloadOptions> Options(std::vector<std::string> arguments) {
  const absl::StatusOr<ParsedArgs> args = ParseArgs(NormloadSpec(), arguments);
  if (!args.ok()) return args.status();
  return MakeOptions(*args);
}

TEST(Normload, ReadsOneKindOfCall) {
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
  ASSERT_EQ(options->load.entries.size(), 1u);
  const MixEntry& entry = options->load.entries[0];
  EXPECT_EQ(entry.spec.group_norm().num_groups(), 4);
  EXPECT_EQ(entry.bytes(), 3 * 2 * 8 * 9 * 2);
  EXPECT_EQ(entry.transport, Transport::kBatch);
  EXPECT_EQ(options->load.concurrency, 5);
  EXPECT_EQ(options->load.requests, 7);
  EXPECT_EQ(options->load.duration, absl::Seconds(2));
  EXPECT_FALSE(options->load.rate.has_value());
  EXPECT_EQ(options->load.connections, 0) << "as many as the server makes necessary";
  EXPECT_EQ(Options({})->load.entries[0].spec.layer_norm().normalized_shape(0), 768);
  EXPECT_EQ(Options({"--shape=4,8"})->load.entries[0].shape, (std::vector<int64_t>{4, 8}));
}

TEST(Normload, MakesAsManyConnectionsAsPutAllCallsIntoTheServer) {
  const auto connections = [](std::vector<std::string> arguments, int max_streams) {
    LoadOptions load = Options(std::move(arguments))->load;
    SetConnections(max_streams, load);
    return load.connections;
  };
  EXPECT_EQ(connections({}, 8), 1);
  EXPECT_EQ(connections({"-c32"}, 8), 4);
  EXPECT_EQ(connections({"-c33"}, 8), 5);
  EXPECT_EQ(connections({"-c32"}, 100), 1);
  EXPECT_EQ(connections({"--sweep"}, 16), 4);
  EXPECT_EQ(connections({"-c4096"}, 8), 256) << "the most that --connections takes";
  EXPECT_EQ(connections({"-c32", "--connections=2"}, 8), 2);
  EXPECT_EQ(connections({"-c3"}, 0), 3) << "a server that takes none";
}

TEST(Normload, ReadsOpenLoopsMixesAndSweeps) {
  const auto open = Options({"--rate=250", "--arrivals=constant", "--seed=9", "--mix=shape=4x4", "--mix=weight=2"});
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->load.rate, 250);
  EXPECT_EQ(open->load.arrivals, ArrivalKind::kConstant);
  EXPECT_EQ(open->load.seed, 9u);
  EXPECT_EQ(open->load.entries.size(), 2u);
  EXPECT_EQ(open->load.concurrency, 64);
  const auto sweep = Options({"--sweep", "--loads=100,50,100", "--slo=5ms", "--duration=1s"});
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_EQ(sweep->loads, (std::vector<double>{50, 100}));
  EXPECT_EQ(sweep->repeats, 3);
  EXPECT_EQ(sweep->load.slo, absl::Milliseconds(5));
  EXPECT_EQ(sweep->expected_time(), 9 * absl::Milliseconds(1500));
  EXPECT_EQ(Options({"--sweep"})->loads.size(), 15u);
}

TEST(Normload, RefusesWhatMakesNoSense) {
  for (const auto& [arguments, named] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--shape", "1000000x1000000x1000000x1000000"}, "--shape is 1000000x1000000x1000000x1000000, but "},
           {{"--shape", "-1x2"}, "--shape is -1x2; "},
           {{"--shape", "ax2"}, "--shape is ax2; it must be integers joined by ',' or 'x'"},
           {{"--dtype", "i8"}, "--dtype is i8; it must be f32, f16, bf16 or f64"},
           {{"--method", "nonorm"}, "nonorm"},
           {{"--transport", "pigeon"}, "--transport is pigeon; it must be unary, batch, stream or shared"},
           {{"--transport", "shared"},
            "--transport is shared, but the server is 127.0.0.1:8001; it must be unix:/path"},
           {{"--concurrency", "0"}, "--concurrency is 0; it must be 1 to 4096"},
           {{"--connections", "257"}, "--connections is 257; it must be 1 to 256"},
           {{"--requests", "-1"}, "--requests is -1; it must be 0 to"},
           {{"--duration", "long"}, "--duration is long; it must be a duration"},
           {{"--duration", "0"}, "--duration is 0; it must be 1ms to 24h"},
           {{"--duration", "inf"}, "--duration is inf; it must be 1ms to 24h"},
           {{"--warmup", "2h"}, "--warmup is 2h; it must be 0 to 1h"},
           {{"--deadline", "0"}, "--deadline is 0; it must be 1ms to 1h"},
           {{"--rate", "0"}, "--rate is 0; it must be 0.01 to 1e+06"},
           {{"--rate", "nan"}, "--rate is nan; it must be 0.01"},
           {{"--rate", "100000", "--duration", "2h"}, "--rate 100000 for 2h1s makes more than 1e+08 calls"},
           {{"--rate", "5", "--sweep"}, "--rate does not go with --sweep"},
           {{"--arrivals", "constant"}, "--arrivals needs an open loop"},
           {{"--rate", "5", "--arrivals", "bursts"}, "--arrivals is bursts; it must be poisson or constant"},
           {{"--seed", "-4"}, "--seed is -4; it must be"},
           {{"--repeats", "0"}, "--repeats is 0; it must be 1 to 100"},
           {{"--slo", "0"}, "--slo is 0; it must be 1us to 10m"},
           {{"--loads", "10"}, "--loads needs --sweep"},
           {{"--sweep", "--loads", "10,0"}, "--loads is 10,0; it must be"},
           {{"--sweep", "--loads", ""}, "--loads is empty; it must be"},
           {{"--sweep", "--requests", "5"}, "--requests does not go with --sweep"},
           {{"--sweep", "--max-time", "10s"},
            "16 measurements of 3.5s, 3 times each, which take 2m48s; --max-time allows 10s"},
           {{"--mix", "weight=-1"}, "--mix weight=-1: --weight is -1; it must be above 0"},
           {{"--mix", "shape=4x4", "--dtype", "f16"}, "--dtype does not go with --mix"},
           {{"--server-pid", "0"}, "--server-pid is 0; it must be"},
           {{"--html", "/nonexistent/report.html"}, "--html is /nonexistent/report.html, which cannot be written"}}) {
    const absl::Status status = Options(arguments).status();
    EXPECT_TRUE(IsUsageError(status)) << named << ": " << status;
    EXPECT_NE(status.message().find(named), std::string::npos) << named << ": " << status;
  }
}

TEST(Normload, ItsPageNamesEveryFlagOfItsOwn) {
  std::ifstream file(std::string(NORMD_SOURCE_DIR) + "/client/README.md");
  std::ostringstream readme;
  readme << file.rdbuf();
  ASSERT_FALSE(readme.str().empty());
  const std::vector<FlagSpec> of_methods = SpecFlags("");
  for (const FlagSpec& flag : NormloadSpec().flags) {
    const auto same = [&](const FlagSpec& other) { return other.name == flag.name; };
    if (std::any_of(of_methods.begin(), of_methods.end(), same)) continue;
    EXPECT_NE(readme.str().find("`--" + std::string(flag.name) + "`"), std::string::npos) << flag.name;
  }
}

TEST(Demo, CarriesItsData) {
  const nlohmann::json parts = nlohmann::json::parse(std::string(WorkedExamplesJson()), nullptr, false);
  ASSERT_TRUE(parts.is_object());
  EXPECT_EQ(parts["examples"].size(), 43u);
  std::set<std::string> methods;
  for (const nlohmann::json& example : parts["methods"]) methods.insert(example["spec"].begin().key());
  for (const std::string& method : MethodNames()) EXPECT_EQ(methods.count(*MethodField(method)), 1u) << method;
  ASSERT_EQ(parts["iris"].size(), 3u);
  EXPECT_EQ(parts["iris"][2]["input"].size(), 150u);
  EXPECT_EQ(parts["iris"][2]["input"][0].size(), 4u);
}

}  // namespace
}  // namespace normd::client

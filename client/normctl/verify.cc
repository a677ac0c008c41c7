// normctl verify: compares a tensor that another program computed with the exact answer, and prints ulps.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/commands.h"
#include "client/normctl/exact_answer.h"
#include "client/normctl/json_message.h"
#include "client/normctl/normalize_request.h"
#include "client/normctl/session_message.h"
#include "client/normctl/target.h"
#include "client/normctl/variant_judge.h"
#include "client/normctl/verification.h"

namespace normd::client {
namespace {

constexpr int64_t kMaxWorst = 1000;

// The flags of METHOD that choose what the exact answer is. Those left out choose what is done with it.
constexpr absl::string_view kMethodFlags[] = {
    "weight", "bias",   "running-mean",   "running-var",       "dtype",  "session",   "training",  "residual",
    "mask",   "device", "residual-scale", "residual-rounding", "header", "no-header", "delimiter", "decimal"};

std::vector<FlagSpec> MethodFlags() {
  std::vector<FlagSpec> out = SpecFlags("");
  for (const FlagSpec& flag : NormalizeFlags("batch_norm")) {  // the method that takes all of them
    const auto* it = std::find(std::begin(kMethodFlags), std::end(kMethodFlags), flag.name);
    if (it != std::end(kMethodFlags)) out.push_back(flag);
  }
  return out;
}

struct VerifyOptions {
  std::string method;  // the name of a NormSpec field
  double max_ulp = 1;
  bool find_variant = false;
  UlpOptions ulps;
};

absl::StatusOr<VerifyOptions> ReadVerifyOptions(const ParsedArgs& args) {
  VerifyOptions out;
  const std::optional<std::string> method = MethodField(args.operands()[0]);
  if (!method.has_value()) return UnknownMethodError(args.operands()[0]);
  out.method = *method;
  if (!args.Has("with")) return UsageError("compared with which tensor? --with OTHER.npy");
  const absl::StatusOr<std::optional<double>> max_ulp = args.Double("max-ulp");
  const absl::StatusOr<std::optional<double>> floor = args.Double("floor");
  const absl::StatusOr<std::optional<int64_t>> worst = args.Int("worst");
  for (const absl::Status& status : {max_ulp.status(), floor.status(), worst.status()}) {
    if (!status.ok()) return status;
  }
  out.max_ulp = max_ulp->value_or(out.max_ulp);
  out.ulps.floor = floor->value_or(0);
  for (const auto& [flag, value] : {std::pair("max-ulp", out.max_ulp), std::pair("floor", out.ulps.floor)}) {
    if (!(value >= 0 && std::isfinite(value))) {
      return BadValueError(flag, *args.Get(flag), "a finite number, at least 0");
    }
  }
  const int64_t count = worst->value_or(static_cast<int64_t>(out.ulps.worst));
  if (count < 0 || count > kMaxWorst) {
    return BadValueError("worst", absl::StrCat(count), absl::StrCat("0 to ", kMaxWorst));
  }
  out.ulps.worst = static_cast<size_t>(count);
  out.find_variant = args.Has("find-variant");
  if (out.find_variant && args.Has("session")) {
    return UsageError("--find-variant does not go with --session, whose definition is fixed: give the flags of METHOD");
  }
  if (args.Has("session") && args.Has("training")) {
    return UsageError("--training does not go with --session: verify leaves the session as it is");
  }
  return out;
}

// The request of `normctl METHOD` with the same flags, which reads all files.
absl::StatusOr<v1::NormalizeRequest> BuildVerifyRequest(const ParsedArgs& args, const Terminal& terminal) {
  CommandSpec command;
  command.max_operands = 1;
  command.flags = NormalizeFlags("batch_norm");
  // Nothing is written, which the builder takes from --validate-only alone.
  std::vector<std::string> words = {"--validate-only"};
  for (const FlagSpec& flag : command.flags) {
    for (const std::string& value : args.GetAll(flag.name)) {
      words.push_back(flag.value.empty() ? absl::StrCat("--", flag.name) : absl::StrCat("--", flag.name, "=", value));
    }
  }
  words.insert(words.end(), {"--", args.operands()[1]});
  const absl::StatusOr<ParsedArgs> parsed = ParseArgs(command, words);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<NormalizeInput> input = BuildNormalizeInput(*parsed);
  if (!input.ok()) return input.status();
  PrintWarnings(input->warnings, terminal);
  input->request.set_validate_only(false);
  input->request.set_precision(v1::PRECISION_EXACT);
  return std::move(input->request);
}

struct Candidate {
  DType dtype;  // the one whose ulps count
  std::vector<double> values;
};

// Loads the tensor of --with, whose values count as they are in the file, whatever --dtype says.
absl::StatusOr<Candidate> LoadCandidate(const ParsedArgs& args, const std::vector<int64_t>& shape) {
  const std::string path = *args.Get("with");
  const absl::StatusOr<std::optional<DType>> dtype = DTypeFlag(args);
  if (!dtype.ok()) return dtype.status();
  absl::StatusOr<CsvOptions> csv = CsvFlags(args);
  if (!csv.ok()) return csv.status();
  csv->header = CsvHeader::kDetect;  // the flags of the header are for INPUT
  absl::StatusOr<LoadedTensor> loaded = LoadAsItIs(path, *dtype, *csv);
  if (!loaded.ok()) return loaded.status();
  if (loaded->tensor.shape == shape) {
    return Candidate{dtype->value_or(loaded->tensor.dtype), loaded->tensor.ToDoubles()};
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": has shape ", ShapeText(loaded->tensor.shape), ", but x has ", ShapeText(shape)));
}

// The definition of the flags with the defaults that the server resolved, so that each choice can be told.
Variant GivenVariant(const v1::NormalizeRequest& request, const v1::Applied& applied) {
  Variant out{WithDefaults(request.spec(), applied), v1::RESIDUAL_ROUNDING_UNSPECIFIED};
  if (request.has_residual()) out.residual_rounding = applied.residual_rounding();
  return out;
}

absl::StatusOr<std::vector<FoundVariant>> FindVariants(Client& client, const v1::NormalizeRequest& request,
                                                       double floor, const Verification& v) {
  const VariantJudge judge(client, request, v.dtype, v.candidate, floor);
  return FindVariant({v.given, FitOf(v.judgement)}, judge.Input(), judge);
}

absl::StatusOr<Verification> Verify(const VerifyOptions& options, const ParsedArgs& args, const Terminal& terminal) {
  absl::StatusOr<v1::NormalizeRequest> request = BuildVerifyRequest(args, terminal);
  if (!request.ok()) return request.status();
  Verification out{.dtype = v1::DTYPE_UNSPECIFIED, .max_ulp = options.max_ulp};
  out.shape.assign(request->x().shape().begin(), request->x().shape().end());
  if (std::find(out.shape.begin(), out.shape.end(), 0) != out.shape.end()) {
    return absl::InvalidArgumentError("x has no elements to compare");
  }
  absl::StatusOr<Candidate> candidate = LoadCandidate(args, out.shape);
  if (!candidate.ok()) return candidate.status();
  const absl::StatusOr<Tensor> x = Tensor::FromProto(request->x());
  if (!x.ok()) return x.status();
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const absl::StatusOr<v1::NormSpec> spec = SetTarget(**client, options.method, args, *request);
  if (!spec.ok()) return spec.status();
  const v1::NormalizeRequest asked = options.find_variant ? *request : v1::NormalizeRequest();
  absl::StatusOr<ExactAnswer> answer = AskExactAnswer(**client, *spec, *std::move(request));
  if (!answer.ok()) return answer.status();
  out.applied = std::move(answer->applied);
  out.dtype = candidate->dtype;
  out.x = x->ToDoubles();
  out.candidate = std::move(candidate->values);
  if (answer->values.size() != out.candidate.size()) {
    return absl::InternalError("the reply's y has another size than x");
  }
  out.has_steps = answer->has_steps;
  out.judgement = Judge(out.dtype, out.candidate, *std::move(answer), options.ulps);
  if (!options.find_variant) return out;
  out.given = GivenVariant(asked, out.applied);
  absl::StatusOr<std::vector<FoundVariant>> found = FindVariants(**client, asked, options.ulps.floor, out);
  if (!found.ok()) return found.status();
  out.found = *std::move(found);
  return out;
}

absl::Status RunVerify(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<VerifyOptions> options = ReadVerifyOptions(args);
  if (!options.ok()) return options.status();
  const absl::StatusOr<Verification> verification = Verify(*options, args, terminal);
  if (!verification.ok()) return verification.status();
  if (args.Has("json")) {
    terminal.out << JsonText(VerificationJson(*verification));
  } else {
    PrintVerification(*verification, terminal);
  }
  if (verification->passed()) return absl::OkStatus();
  // The lines for people have said it.
  return ReportedError(args.Has("json") ? verification->Verdict() : "");
}

constexpr absl::string_view kVerifyDetails =
    "INPUT is x, the tensor of --with is the y that another program made of it, and the flags are those of normctl "
    "METHOD.\n"
    "\n"
    "  normctl verify layer-norm x.npy --with=onnx.npy --eps 1e-6 --weight w.npy\n"
    "  normctl verify rms-norm x.npy --with=kernel.npy --dtype bf16 --max-ulp 2\n"
    "\n"
    "The exact answer is what normd computes of x widened to f64: the nearest f64, or within 4 ulp of f64, 2^-27 ulp "
    "of "
    "f32, for lp-norm of a p whose replies say \"bounded\". Servers whose replies say neither have numerics before "
    "exact-4 and "
    "are within 1 ulp of f64. A candidate of f64 is compared with an answer that is itself rounded to f64.\n"
    "\n"
    "An ulp is the distance of neighbouring values of the candidate's dtype (with --dtype: of that dtype, to which x "
    "is rounded, too) around the exact value. Errors are fractions: 0.5 or less is correctly rounded. At 0 and among "
    "subnormals it is the smallest subnormal; at a power of two, for a candidate nearer to 0, the smaller ulp below "
    "it. NaN equals NaN. One NaN or infinity that the other does not have is a mismatch and counts apart.\n"
    "\n"
    "The nearest value is the one that the exact result rounds to, ties to even: at most one value of a dtype, where "
    "an "
    "error of at most 0.5 may have two at a tie. The share of elements that are it is counted by itself. An answer "
    "next "
    "to the middle between two values does not tell which of them is nearer; such elements are undecided. A candidate "
    "of f64 is the nearest if it equals an answer that is.\n"
    "\n"
    "Roundings that the definition has are a part of the answer: that of x + residual (round-first), and with "
    "--cast-order cast-then-affine those of the normalised value and of its product with the weight. The normalised "
    "value may then be rounded to either neighbour, the one from which the candidate comes best, and an element's "
    "error is the larger of this rounding's and the last step's; the nearest value has every step rounded to nearest. "
    "Other roundings between the steps are errors of the "
    "candidate. `normctl verify METHOD --help` lists the flags of METHOD alone; those of others are refused.\n"
    "\n"
    "--find-variant looks for the definition that the other program has: it changes one choice at a time (eps with "
    "where it is added and with the divisor of the variance, n or n - 1; the cast order, the weight offset, mean or "
    "not, "
    "axes, groups, layout, rounding of the residual sum), goes on from what fits best, and lists the best five. It "
    "tries "
    "at most 250 definitions, each with a request or two; the exit code stays that of the definition asked for.\n"
    "\n"
    "Exit code 0 if every error is within --max-ulp and nothing mismatches, else 1.";

}  // namespace

std::vector<Command> VerifyCommands() {
  Command command;
  command.spec = {"verify",
                  "METHOD INPUT",
                  2,
                  2,
                  "compare another program's tensor with the exact answer, in ulps",
                  std::string(kVerifyDetails),
                  Join({{"with", '\0', "FILE", "the tensor to judge: .npy or .csv, of the shape of x"},
                        {"max-ulp", '\0', "U", "the largest error that passes (default 1)"},
                        {"floor", '\0', "F", "judge elements nearer to 0 than F by the ulp of F (default 0)"},
                        {"worst", '\0', "N", "how many of the worst elements to list (default 5)"},
                        {"find-variant", '\0', "", "try other definitions of the norm, and say which fits best"}},
                       MethodFlags())};
  command.run = &RunVerify;
  return {command};
}

}  // namespace normd::client

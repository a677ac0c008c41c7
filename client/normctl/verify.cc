// normctl verify: compares a tensor that another program computed with the exact answer, and prints ulps.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/cast_steps.h"
#include "client/normctl/commands.h"
#include "client/normctl/exact_answer.h"
#include "client/normctl/json_message.h"
#include "client/normctl/nearest.h"
#include "client/normctl/normalize_request.h"
#include "client/normctl/session_message.h"
#include "client/normctl/target.h"
#include "client/normctl/ulps.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

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

struct Verification {
  v1::Applied applied;
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<double> x, candidate, exact;
  UlpReport report;
  NearestCount nearest;
  double max_ulp;
  bool has_steps = false;  // the exact answer is rounded before the affine step

  bool passed() const { return report.mismatches == 0 && report.max <= max_ulp + ExactnessUlps(dtype); }
  std::string Verdict() const {
    if (passed()) return absl::StrFormat("every error is within %s ulp", ShortestText(max_ulp));
    if (report.mismatches > 0) {
      return absl::StrFormat("%d elements are NaN or infinite on one side alone", report.mismatches);
    }
    return absl::StrFormat("the largest error, %.4g ulp, is above %s", report.max, ShortestText(max_ulp));
  }
};

std::vector<int64_t> IndexOf(int64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> out(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; flat /= shape[axis]) out[axis] = flat % shape[axis];
  return out;
}

// The shortest text of a value of `dtype`; 16-bit values are read as floats.
std::string ValueText(DType dtype, double value) {
  return dtype == v1::DTYPE_F64 ? ShortestText(value) : ShortestText(static_cast<float>(value));
}

std::string UlpsText(double ulps) { return std::isinf(ulps) ? "-" : absl::StrFormat("%.4g", ulps); }

std::string HistogramText(const UlpReport& report, int width) {
  constexpr int kBarWidth = 30;
  Table table({{"ulps", Align::kRight}, {"elements", Align::kRight}, {"share", Align::kRight}, {""}});
  int64_t left = report.elements - report.mismatches;
  const auto all = static_cast<double>(report.elements);
  for (size_t i = 0; i < report.histogram.size() && left > 0; ++i) {
    const int64_t count = report.histogram[i];
    left -= count;
    const double share = static_cast<double>(count) / all;
    std::string bar;
    for (int n = 0; n < static_cast<int>(std::ceil(share * kBarWidth)); ++n) absl::StrAppend(&bar, "█");
    table.AddRow({i < std::size(kUlpBuckets) ? absl::StrCat("<= ", kUlpBuckets[i]) : "above", absl::StrCat(count),
                  absl::StrFormat("%.4g %%", 100 * share), bar});
  }
  return table.Render(width);
}

std::string WorstText(const Verification& v, int width) {
  Table table({{"index"},
               {"x", Align::kRight},
               {"candidate", Align::kRight},
               {"exact", Align::kRight},
               {"ulps", Align::kRight}});
  for (const UlpError& error : v.report.worst) {
    table.AddRow({absl::StrCat("[", absl::StrJoin(IndexOf(error.index, v.shape), ","), "]"),
                  ValueText(v.dtype, v.x[error.index]), ValueText(v.dtype, v.candidate[error.index]),
                  ShortestText(v.exact[error.index]), UlpsText(error.ulps)});
  }
  return table.Render(width);
}

// "nearest   30 of 32 (93.75 %) are the nearest f32, 1 undecided".
std::string NearestText(const Verification& v) {
  const double share = 100 * static_cast<double>(v.nearest.nearest) / static_cast<double>(v.report.elements);
  std::string text = absl::StrFormat("nearest   %d of %d (%.4g %%) are the nearest %s", v.nearest.nearest,
                                     v.report.elements, share, DTypeName(v.dtype));
  if (v.nearest.undecided > 0) absl::StrAppend(&text, ", ", v.nearest.undecided, " undecided");
  return text;
}

void PrintText(const Verification& v, const Terminal& terminal) {
  const UlpReport& r = v.report;
  terminal.out << absl::StrFormat("method    %s, eps %s %s, %s %s, exact answer in f64%s (numerics %s)\n",
                                  v.applied.method(), ShortestText(v.applied.eps()),
                                  EnumText(*v1::EpsMode_descriptor(), v.applied.eps_mode()), DTypeName(v.dtype),
                                  ShapeText(v.shape), v.has_steps ? ", cast then affine" : "", v.applied.numerics());
  terminal.out << absl::StrFormat("ulps      max %.4g, mean %.4g, p50 %.4g, p99 %.4g, p99.9 %.4g\n", r.max, r.mean,
                                  r.p50, r.p99, r.p99_9);
  const int64_t rounded = r.AtMost(0.5), within_1 = r.AtMost(1), within_2 = r.AtMost(2);
  terminal.out << absl::StrFormat("elements  %d: %d correctly rounded, %d within 1 ulp, %d within 2, %d above\n",
                                  r.elements, rounded, within_1 - rounded, within_2 - within_1,
                                  r.elements - r.mismatches - within_2);
  terminal.out << NearestText(v) << "\n";
  if (r.mismatches > 0) {
    terminal.out << absl::StrFormat("mismatch  %d that are NaN or infinite on one side alone\n", r.mismatches);
  }
  terminal.out << absl::StrFormat("errors    absolute at most %.4g, relative at most %.4g\n", r.max_absolute,
                                  r.max_relative);
  terminal.out << "\n" << HistogramText(r, terminal.width);
  if (!r.worst.empty()) terminal.out << "\n" << WorstText(v, terminal.width);
  const std::string word =
      v.passed() ? Painted(Paint::kBold, "ok:", terminal.color) : Painted(Paint::kError, "FAILED:", terminal.color);
  terminal.out << "\n" << word << " " << v.Verdict() << "\n";
}

Json ReportJson(const Verification& v) {
  const UlpReport& r = v.report;
  Json histogram = Json::array(), worst = Json::array();
  for (size_t i = 0; i < r.histogram.size(); ++i) {
    Json bucket = {{"elements", r.histogram[i]}};
    if (i < std::size(kUlpBuckets)) bucket["at_most"] = kUlpBuckets[i];
    histogram.push_back(std::move(bucket));
  }
  for (const UlpError& error : r.worst) {
    worst.push_back({{"index", IndexOf(error.index, v.shape)},
                     {"x", NumberJson(v.x[error.index])},
                     {"candidate", NumberJson(v.candidate[error.index])},
                     {"exact", NumberJson(v.exact[error.index])},
                     {"ulps", NumberJson(error.ulps)}});
  }
  return {{"applied", MessageJson(v.applied)},
          {"dtype", std::string(DTypeName(v.dtype))},
          {"shape", v.shape},
          {"elements", r.elements},
          {"mismatches", r.mismatches},
          {"correctly_rounded", r.AtMost(0.5)},
          {"nearest", {{"elements", v.nearest.nearest}, {"undecided", v.nearest.undecided}}},
          {"ulps", {{"max", r.max}, {"mean", r.mean}, {"p50", r.p50}, {"p99", r.p99}, {"p99_9", r.p99_9}}},
          {"max_absolute_error", NumberJson(r.max_absolute)},
          {"max_relative_error", NumberJson(r.max_relative)},
          {"histogram", std::move(histogram)},
          {"worst", std::move(worst)},
          {"max_ulp", v.max_ulp},
          {"passed", v.passed()}};
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
  absl::StatusOr<ExactAnswer> answer = AskExactAnswer(**client, *spec, *std::move(request));
  if (!answer.ok()) return answer.status();
  out.applied = std::move(answer->applied);
  out.dtype = candidate->dtype;
  out.x = x->ToDoubles();
  out.candidate = std::move(candidate->values);
  if (answer->values.size() != out.candidate.size()) {
    return absl::InternalError("the reply's y has another size than x");
  }
  UlpOptions ulps = options.ulps;
  StepReference steps;
  out.has_steps = answer->has_steps;
  if (answer->has_steps) {
    out.nearest = CountNearestOfSteps(answer->t, answer->values, answer->affine, out.candidate);
    steps = ReferenceOfSteps(answer->t, answer->values, answer->affine, out.dtype, out.candidate, options.ulps.floor);
    ulps.least = steps.first_ulps;
    out.exact = std::move(steps.exact);
  } else {
    out.nearest = CountNearest(out.dtype, out.candidate, answer->values);
    out.exact = std::move(answer->values);
  }
  out.report = CompareUlps(out.dtype, out.candidate, out.exact, ulps);
  return out;
}

absl::Status RunVerify(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<VerifyOptions> options = ReadVerifyOptions(args);
  if (!options.ok()) return options.status();
  const absl::StatusOr<Verification> verification = Verify(*options, args, terminal);
  if (!verification.ok()) return verification.status();
  if (args.Has("json")) {
    terminal.out << JsonText(ReportJson(*verification));
  } else {
    PrintText(*verification, terminal);
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
    "The exact answer is what normd computes of x widened to f64, in pairs of f64: within 4 ulp of f64 by contract, "
    "which is 2^-27 ulp of f32, and 0.5 as measured (lp-norm of p other than 1 and 2: 1.05). A candidate of f64 is "
    "compared with an answer that is itself rounded to f64.\n"
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
    "of f64 is the nearest if it equals the answer.\n"
    "\n"
    "Roundings that the definition has are a part of the answer: that of x + residual (round-first), and with "
    "--cast-order cast-then-affine those of the normalised value and of its product with the weight. The normalised "
    "value may then be rounded to either neighbour, the one from which the candidate comes best, and an element's "
    "error is the larger of this rounding's and the last step's; the nearest value has every step rounded to nearest. "
    "Other roundings between the steps are errors of the "
    "candidate. `normctl verify METHOD --help` lists the flags of METHOD alone; those of others are refused. Exit code "
    "0 if every error is within --max-ulp and nothing mismatches, else 1.";

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
                        {"worst", '\0', "N", "how many of the worst elements to list (default 5)"}},
                       MethodFlags())};
  command.run = &RunVerify;
  return {command};
}

}  // namespace normd::client

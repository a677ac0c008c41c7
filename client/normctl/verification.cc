#include "client/normctl/verification.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/json_message.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

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
  for (const UlpError& error : v.report().worst) {
    table.AddRow({absl::StrCat("[", absl::StrJoin(IndexOf(error.index, v.shape), ","), "]"),
                  ValueText(v.dtype, v.x[error.index]), ValueText(v.dtype, v.candidate[error.index]),
                  ShortestText(v.judgement.exact[error.index]), UlpsText(error.ulps)});
  }
  return table.Render(width);
}

// What is to be said of an answer that is not the nearest f64; servers before exact-4 say nothing of theirs.
std::string RoundingText(const v1::Applied& applied) {
  if (applied.rounding() == v1::ROUNDING_NEAREST) return "";
  if (applied.rounding() == v1::ROUNDING_UNSPECIFIED) return ", rounding not said";
  return absl::StrCat(", ", EnumText(*v1::Rounding_descriptor(), applied.rounding()));
}

// "nearest   30 of 32 (93.75 %) are the nearest f32, 1 undecided".
std::string NearestText(const Verification& v) {
  const double share =
      100 * static_cast<double>(v.judgement.nearest.nearest) / static_cast<double>(v.report().elements);
  const bool is_said = v.dtype != v1::DTYPE_F64 || v.applied.rounding() == v1::ROUNDING_NEAREST;
  const std::string what = is_said ? absl::StrCat("are the nearest ", DTypeName(v.dtype))
                                   : "equal the answer, which need not be the nearest f64";
  std::string text =
      absl::StrFormat("nearest   %d of %d (%.4g %%) %s", v.judgement.nearest.nearest, v.report().elements, share, what);
  if (v.judgement.nearest.undecided > 0) absl::StrAppend(&text, ", ", v.judgement.nearest.undecided, " undecided");
  return text;
}

// What --find-variant found, in one sentence.
std::string FoundVerdict(const Verification& v) {
  const FoundVariant& best = v.found.front();
  const std::string differences = Differences(best.variant, v.given);
  const bool is_given = differences == kAsGiven;
  if (v.Fits(best.fit)) {
    const auto alike = std::count_if(v.found.begin() + 1, v.found.end(),
                                     [&](const FoundVariant& other) { return !FitsBetter(best.fit, other.fit); });
    std::string text = is_given ? "no other definition fits better" : absl::StrCat("it fits: ", differences);
    if (alike > 0) absl::StrAppend(&text, "; ", alike, " others fit alike, which this data cannot tell apart");
    return text;
  }
  if (is_given) return absl::StrFormat("none of the %d definitions tried fits better", v.found.size());
  return absl::StrCat("the best of the ", v.found.size(), " definitions tried, though it does not fit: ", differences);
}

// The best of the definitions that were tried, and that of the flags.
std::string FoundText(const Verification& v, int width) {
  constexpr size_t kRows = 5;
  Table table({{"definition"}, {"nearest", Align::kRight}, {"max ulps", Align::kRight}, {"mean ulps", Align::kRight}});
  for (size_t i = 0; i < v.found.size(); ++i) {
    const auto& [variant, fit] = v.found[i];
    const std::string differences = Differences(variant, v.given);
    if (i >= kRows && differences != kAsGiven) continue;
    const double share = 100 * static_cast<double>(fit.nearest) / static_cast<double>(fit.elements);
    const bool known = fit.mismatches == 0;
    table.AddRow({differences, absl::StrFormat("%.4g %%", share), known ? UlpsText(fit.max_ulps) : "-",
                  known ? UlpsText(fit.mean_ulps) : "-"});
  }
  return absl::StrCat(table.Render(width), "\nvariant: ", FoundVerdict(v), "\n");
}

Json FoundJson(const Verification& v) {
  Json out = Json::array();
  for (const auto& [variant, fit] : v.found) {
    out.push_back({{"differences", Differences(variant, v.given)},
                   {"spec", MessageJson(variant.spec)},
                   {"unbiased", variant.unbiased},
                   {"rounds_weight", variant.rounds_weight},
                   {"nearest", fit.nearest},
                   {"mismatches", fit.mismatches},
                   {"max_ulps", fit.max_ulps},
                   {"mean_ulps", fit.mean_ulps},
                   {"fits", v.Fits(fit)}});
  }
  return out;
}

}  // namespace

std::string Verification::Verdict() const {
  if (passed()) return absl::StrFormat("every error is within %s ulp", ShortestText(max_ulp));
  if (report().mismatches > 0) {
    return absl::StrFormat("%d elements are NaN or infinite on one side alone", report().mismatches);
  }
  return absl::StrFormat("the largest error, %.4g ulp, is above %s", report().max, ShortestText(max_ulp));
}

void PrintVerification(const Verification& v, const Terminal& terminal) {
  const UlpReport& r = v.report();
  terminal.out << absl::StrFormat(
      "method    %s, eps %s %s, %s %s, exact answer in f64%s%s (numerics %s)\n", v.applied.method(),
      ShortestText(v.applied.eps()), EnumText(*v1::EpsMode_descriptor(), v.applied.eps_mode()), DTypeName(v.dtype),
      ShapeText(v.shape), v.has_steps ? ", cast then affine" : "", RoundingText(v.applied), v.applied.numerics());
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
  if (!v.found.empty()) terminal.out << "\n" << FoundText(v, terminal.width);
}

Json VerificationJson(const Verification& v) {
  const UlpReport& r = v.report();
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
                     {"exact", NumberJson(v.judgement.exact[error.index])},
                     {"ulps", NumberJson(error.ulps)}});
  }
  Json out = {{"applied", MessageJson(v.applied)},
              {"dtype", std::string(DTypeName(v.dtype))},
              {"shape", v.shape},
              {"elements", r.elements},
              {"mismatches", r.mismatches},
              {"correctly_rounded", r.AtMost(0.5)},
              {"nearest", {{"elements", v.judgement.nearest.nearest}, {"undecided", v.judgement.nearest.undecided}}},
              {"ulps", {{"max", r.max}, {"mean", r.mean}, {"p50", r.p50}, {"p99", r.p99}, {"p99_9", r.p99_9}}},
              {"max_absolute_error", NumberJson(r.max_absolute)},
              {"max_relative_error", NumberJson(r.max_relative)},
              {"histogram", std::move(histogram)},
              {"worst", std::move(worst)},
              {"max_ulp", v.max_ulp},
              {"passed", v.passed()}};
  if (!v.found.empty()) out["variants"] = FoundJson(v);
  return out;
}

}  // namespace normd::client

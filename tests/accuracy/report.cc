// Prints the tables of kernels/README.md's section "Accuracy": the greatest error of every method, dtype and precision
// over the case list and the sweeps; by conditioning; how much of EXACT is wrongly rounded, there and in rows that are
// hard to round; RMSNorm beside LayerNorm; a batch's statistics beside the whole group's.
//   accuracy_report [--quick] [--check]
//   accuracy_report --beside_slow_road=ELEMENTS [--check]
// --quick: a sixteenth of the cases and a quarter of the sweeps. --check: exit status 1 when a bound does not hold, or
// a result of EXACT is wrongly rounded. --beside_slow_road: at least as many elements of every form and dtype, compared
// with what the slow road decides, instead of all other tables.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "kernels/base/strings.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/methods.h"
#include "tests/accuracy/beside_slow_road.h"
#include "tests/accuracy/measure.h"
#include "tests/accuracy/nearest_share.h"
#include "tests/accuracy/sweep.h"
#include "tests/kernels/cases.h"
#include "tests/support/boundary_rows.h"
#include "tests/support/run_case.h"

namespace normd::accuracy {
namespace {

struct Arithmetic {
  const char* title;
  DType dtype;
  Precision precision;
};

constexpr Arithmetic kColumns[] = {
    {"f32", DType::kF32, Precision::kExact},       {"f16", DType::kF16, Precision::kExact},
    {"bf16", DType::kBF16, Precision::kExact},     {"f64", DType::kF64, Precision::kExact},
    {"f32 FAST", DType::kF32, Precision::kFast},   {"f16 FAST", DType::kF16, Precision::kFast},
    {"bf16 FAST", DType::kBF16, Precision::kFast},
};
constexpr size_t kColumnCount = std::size(kColumns);

size_t ColumnOf(const Case& c) {
  for (size_t i = 0; i < kColumnCount; ++i) {
    if (kColumns[i].dtype == c.dtype && kColumns[i].precision == c.options.precision) return i;
  }
  return 0;
}

struct Row {
  Worst columns[kColumnCount];
};

// The columns of EXACT are the first.
constexpr size_t kExactColumns = 4;

struct ShareRow {
  Shares columns[kExactColumns];
};

struct Tables {
  std::map<Method, Row> methods;
  std::map<double, Row> conditions;  // mean / deviation
  std::map<Method, ShareRow> shares;

  void Add(const Worst& worst, const Case& c) { methods[c.spec.method()].columns[ColumnOf(c)].Add(worst); }
  // Where to count what is wrongly rounded.
  Shares* SharesOf(const Case& c) {
    const size_t column = ColumnOf(c);
    return column < kExactColumns ? &shares[c.spec.method()].columns[column] : nullptr;
  }
};

std::string Cell(const Worst& worst) {
  if (worst.elements == 0) return "";
  char text[64];
  std::snprintf(text, sizeof(text), "%.3f", worst.ulp);
  if (worst.ulp >= 1000) std::snprintf(text, sizeof(text), worst.ulp >= 1e299 ? "wrong" : "%.2g", worst.ulp);
  return worst.Within() ? text : "**" + std::string(text) + "**";
}

void PrintHead(const char* first) {
  std::string head = std::string("| ") + first + " |", line = "|---|";
  for (const Arithmetic& a : kColumns) {
    head += std::string(" ") + a.title + " |";
    line += "---|";
  }
  std::printf("%s\n%s\n", head.c_str(), line.c_str());
}

void PrintRow(const std::string& first, const Row& row) {
  std::string text = "| " + first + " |";
  for (const Worst& worst : row.columns) text += " " + Cell(worst) + " |";
  std::printf("%s\n", text.c_str());
}

// The number of cells beyond their bound, each with its case.
int Faults(const Row& row) {
  int faults = 0;
  for (const Worst& worst : row.columns) {
    if (worst.Within()) continue;
    ++faults;
    std::printf("beyond the bound: %s\n", worst.name.c_str());
  }
  return faults;
}

void MeasureCases(Backend& backend, size_t stride, Tables* tables) {
  const std::vector<Case> all = cases::All();
  for (size_t i = 0; i < all.size(); i += stride) {
    const absl::StatusOr<NormPlan> plan = PlanOf(all[i]);
    tables->Add(Measure(backend, all[i], MakeData(all[i], *plan, 0), tables->SharesOf(all[i])), all[i]);
  }
}

void MeasureSweeps(Backend& backend, size_t stride, Tables* tables) {
  for (const Arithmetic& a : kColumns) {
    for (const bool conditioning : {true, false}) {
      const std::vector<Sample> samples = conditioning ? ConditioningSweep(a.dtype) : MagnitudeSweep(a.dtype);
      for (size_t i = 0; i < samples.size(); i += stride) {
        Case c = samples[i].c;
        if (a.precision == Precision::kFast && !cases::HasFast(c)) continue;
        c.options.precision = a.precision;
        const Worst worst = Measure(backend, c, samples[i].data, tables->SharesOf(c));
        tables->Add(worst, c);
        if (conditioning) tables->conditions[samples[i].at].columns[ColumnOf(c)].Add(worst);
      }
    }
  }
}

void PrintShareRow(const std::string& first, const Share (&columns)[kExactColumns]) {
  std::string text = "| " + first + " |";
  for (const Share& share : columns) {
    text += share.of == 0 ? " |" : Concat(" ", share.wrong, " of ", share.of, " |");
  }
  std::printf("%s\n", text.c_str());
}

void PrintShareHead(const char* first) {
  std::printf("| %s | f32 | f16 | bf16 | f64 |\n|---|---|---|---|---|\n", first);
}

// Whether nothing is wrongly rounded.
bool PrintShares(const std::map<Method, ShareRow>& shares) {
  std::printf("\nWrongly rounded elements of y, EXACT:\n\n");
  PrintShareHead("method");
  ShareRow all;
  for (const auto& [method, row] : shares) {
    Share y[kExactColumns];
    for (size_t i = 0; i < kExactColumns; ++i) {
      y[i] = row.columns[i][Returned::kY];
      all.columns[i].Add(row.columns[i]);
    }
    PrintShareRow(std::string(Info(method).title), y);
  }
  std::printf("\nWrongly rounded results, EXACT, all methods:\n\n");
  PrintShareHead("result");
  constexpr const char* kNames[kReturnedCount] = {"y", "h", "MEAN", "INV_STD", "moments: mean, M2"};
  int64_t wrong = 0;
  for (size_t what = 0; what < kReturnedCount; ++what) {
    Share columns[kExactColumns];
    for (size_t i = 0; i < kExactColumns; ++i) columns[i] = all.columns[i].returned[what];
    for (const Share& share : columns) wrong += share.wrong;
    PrintShareRow(kNames[what], columns);
  }
  return wrong == 0;
}

// The first case of every method, dtype and result that is wrongly rounded.
void PrintExamples(const std::map<Method, ShareRow>& shares) {
  std::printf("wrongly rounded: results that are to be the nearest values\n");
  for (const auto& [method, row] : shares) {
    for (const Shares& column : row.columns) {
      for (const Share& share : column.returned) {
        if (share.wrong > 0) std::printf("wrongly rounded: %s\n", share.example.c_str());
      }
    }
  }
}

// Rows that are hard to round, of a seed. Whether nothing is wrongly rounded.
bool PrintBoundaryRows(Backend& backend) {
  std::map<std::string, ShareRow> forms;
  for (const BoundaryRow& row : BoundaryRows(1)) {
    std::string form(Info(row.c.spec.method()).title);
    if (row.c.spec.layout() == Layout::kChannelsLast) form += ", channels last";
    if (row.c.weight.has_value() || row.c.bias.has_value()) form += ",";
    if (row.c.weight.has_value()) form += " w";
    if (row.c.bias.has_value()) form += " b";
    Measure(backend, row.c, row.data, &forms[form].columns[ColumnOf(row.c)]);
  }
  std::printf("\nWrongly rounded elements of y in boundary rows, EXACT:\n\n");
  PrintShareHead("rows");
  int64_t wrong = 0;
  for (const auto& [form, row] : forms) {
    Share y[kExactColumns];
    for (size_t i = 0; i < kExactColumns; ++i) {
      y[i] = row.columns[i][Returned::kY];
      wrong += y[i].wrong;
    }
    PrintShareRow(form, y);
  }
  return wrong == 0;
}

void PrintRmsBesideLayer(Backend& backend, int64_t rows) {
  std::printf("\nRMSNorm beside LayerNorm, the same %lld rows of 4,096, ulp at |y|:\n\n", static_cast<long long>(rows));
  std::printf("| dtype | data | RMSNorm max | rms | LayerNorm max | rms |\n|---|---|---|---|---|---|\n");
  for (const Arithmetic& a : kColumns) {
    if (a.dtype != DType::kF16 && a.dtype != DType::kBF16) continue;
    for (const bool far : {false, true}) {
      CaseData data;
      data.x = MakeValues(far ? Data::kFarMean : Data::kNormal, a.dtype, rows * 4096, 23);
      OwnUlp own[2];
      for (int i = 0; i < 2; ++i) {
        Case c =
            cases::With(cases::On(i == 0 ? cases::Of(Method::kRmsNorm) : cases::Over({4096}), {rows, 4096}), a.dtype);
        c.options.precision = a.precision;
        own[i] = MeasureAtOwnUlp(backend, c, data);
      }
      const char* far_text = a.dtype == DType::kF16 ? "512 + N" : "64 + N";
      std::printf("| %s | %s | %.3f | %.3f | %.3f | %.3f |\n", a.title, far ? far_text : "3 N + 1", own[0].max,
                  own[0].rms, own[1].max, own[1].rms);
    }
  }
}

// Whether the errors are near 1 / sqrt(batch) and sqrt(2 / (batch - 1)), as those of normal data must be.
bool PrintBatchStatistics(Backend& backend, int64_t samples) {
  constexpr int64_t kChannels = 64;
  std::printf(
      "\nBatchNorm: statistics of a batch beside those of all samples (%lld samples of %lld channels), relative\n"
      "error, root mean square over channels and batches:\n\n",
      static_cast<long long>(samples), static_cast<long long>(kChannels));
  std::printf("| batch | mean | 1/sqrt(batch) | variance | sqrt(2/(batch-1)) |\n|---|---|---|---|---|\n");
  bool as_expected = true;
  for (const BatchError& e : MeasureBatchStatistics(backend, samples, kChannels)) {
    const auto n = static_cast<double>(e.batch);
    const double mean = 1 / std::sqrt(n), variance = std::sqrt(2 / (n - 1));
    std::printf("| %lld | %.4f | %.4f | %.4f | %.4f |\n", static_cast<long long>(e.batch), e.mean, mean, e.variance,
                variance);
    as_expected = as_expected && std::abs(e.mean / mean - 1) < 0.1 && std::abs(e.variance / variance - 1) < 0.15;
  }
  return as_expected;
}

// Whether nothing differs.
bool PrintBesideSlowRoad(int64_t elements) {
  std::printf(
      "Elements of EXACT that differ from what the slow road decides, which is asked for all that lie 4,096\n"
      "times (f64: 2^40 times) as far from a middle as a bound reaches, or nearer; and the parts per million\n"
      "that the kernels left to it. %s.\n\n| form | dtype | different | left |\n|---|---|---|---|\n",
      std::string(ActiveCpuTargetName()).c_str());
  bool none = true;
  for (const Form& form : FormsBesideSlowRoad()) {
    const Differences d =
        BesideSlowRoad(form.c, elements,
                       {.of_slow_road = form.c.dtype == DType::kF64 ? BoundFactors::kWideOfF64 : BoundFactors::kWide});
    none = none && d.different == 0;
    std::printf("| %s | %s | %lld of %lld | %.1f |\n", form.title.c_str(), std::string(Name(form.c.dtype)).c_str(),
                static_cast<long long>(d.different), static_cast<long long>(d.of),
                1e6 * static_cast<double>(d.undecided) / static_cast<double>(d.of));
    std::fflush(stdout);  // each takes a while
  }
  return none;
}

bool ReadCount(std::string_view text, int64_t* count) {
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, *count);
  return error == std::errc() && read == end && *count > 0;
}

int Main(bool quick, bool check) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  Tables tables;
  MeasureCases(*backend, quick ? 16 : 1, &tables);
  MeasureSweeps(*backend, quick ? 4 : 1, &tables);

  std::printf("Greatest error of y in ulp, %s; EXACT but where FAST is said. Bounds: 1, f64 4, FAST 4.\n\n",
              std::string(ActiveCpuTargetName()).c_str());
  PrintHead("method");
  for (const auto& [method, row] : tables.methods) PrintRow(std::string(Info(method).title), row);
  std::printf("\nBy conditioning, methods that subtract a mean:\n\n");
  PrintHead("mean / deviation");
  for (const auto& [condition, row] : tables.conditions) {
    char text[32];
    std::snprintf(text, sizeof(text), "%g", condition);
    PrintRow(text, row);
  }
  const bool nearest = PrintShares(tables.shares);
  const bool on_boundaries = PrintBoundaryRows(*backend);
  PrintRmsBesideLayer(*backend, quick ? 4 : 64);
  const bool statistics = PrintBatchStatistics(*backend, quick ? 1024 : 8192);

  std::printf("\n");
  int faults = 0;
  int64_t elements = 0;
  for (const auto& [method, row] : tables.methods) {
    faults += Faults(row);
    for (const Worst& worst : row.columns) elements += worst.elements;
  }
  if (!statistics) std::printf("beyond expectation: the statistics of batches\n");
  const bool wrongly_rounded = !nearest || !on_boundaries;
  if (wrongly_rounded) PrintExamples(tables.shares);
  std::printf("bounds: %lld elements judged, %d of method and dtype beyond\n", static_cast<long long>(elements),
              faults);
  return check && (faults > 0 || wrongly_rounded || !statistics || elements == 0) ? 1 : 0;
}

}  // namespace
}  // namespace normd::accuracy

int main(int argc, char** argv) {
  constexpr std::string_view kMaxIsa = "--max_isa=", kBeside = "--beside_slow_road=";
  bool quick = false, check = false;
  int64_t beside = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      quick = true;
    } else if (argument == "--check") {
      check = true;
    } else if (argument.starts_with(kBeside) && normd::accuracy::ReadCount(argument.substr(kBeside.size()), &beside)) {
      continue;
    } else if (argument.starts_with(kMaxIsa)) {
      const absl::Status status = normd::LimitCpuTargets(argument.substr(kMaxIsa.size()));
      if (status.ok()) continue;
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      return 2;
    } else {
      std::fprintf(stderr,
                   "usage: accuracy_report [--quick] [--check] [--beside_slow_road=ELEMENTS] [--max_isa=ISA]\n");
      return 2;
    }
  }
  if (beside > 0) return normd::accuracy::PrintBesideSlowRoad(beside) || !check ? 0 : 1;
  return normd::accuracy::Main(quick, check);
}

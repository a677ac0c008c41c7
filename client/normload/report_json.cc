#include <nlohmann/json.hpp>

#include "client/normload/report.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

Json Share(std::optional<double> share) { return share.has_value() ? Json(*share) : Json(); }

Json QuantilesJson(const Quantiles& quantiles) {
  return {{"p50", quantiles.p50},    {"p90", quantiles.p90}, {"p99", quantiles.p99},
          {"p99.9", quantiles.p999}, {"max", quantiles.max}, {"mean", quantiles.mean}};
}

Json CallsJson(const CallSummary& calls) {
  return {{"name", calls.name},
          {"kernel", calls.kernel},
          {"calls", calls.calls},
          {"good", calls.good},
          {"rejected", calls.rejected},
          {"failed", calls.failed},
          {"errors", calls.errors},
          {"first_error", calls.first_error},
          {"calls_per_second", calls.calls_per_second},
          {"good_per_second", calls.good_per_second},
          {"tensors_per_second", calls.tensors_per_second},
          {"rows_per_second", calls.rows_per_second},
          {"sent_mb_per_second", calls.sent_mb_per_second},
          {"received_mb_per_second", calls.received_mb_per_second},
          {"latency_ns", QuantilesJson(calls.latency)}};
}

Json RunsJson(const std::vector<RunSummary>& runs) {
  Json out = Json::array();
  for (const RunSummary& run : runs) out.push_back(RunJson(run));
  return out;
}

Json EntryJson(const MixEntry& entry) {
  return {{"name", entry.name()},
          {"weight", entry.weight},
          {"method", entry.method},
          {"session", entry.session},
          {"shape", entry.shape},
          {"dtype", DTypeName(entry.dtype)},
          {"transport", TransportName(entry.transport)},
          {"items_per_call", entry.items()},
          {"training", entry.training},
          {"steps", entry.steps}};
}

Json LoadJson(const NormloadOptions& options) {
  const LoadOptions& load = options.load;
  Json entries = Json::array();
  for (const MixEntry& entry : load.entries) entries.push_back(EntryJson(entry));
  return {{"mode", options.mode()},
          {"entries", entries},
          {"rate", Share(load.rate)},
          {"arrivals", ArrivalName(load.arrivals)},
          {"seed", load.seed},
          {"loads_percent", options.loads},
          {"concurrency", load.concurrency},
          {"connections", load.connections},
          {"max_streams", load.max_streams},
          {"warmup_seconds", absl::ToDoubleSeconds(load.warmup)},
          {"duration_seconds", absl::ToDoubleSeconds(load.duration)},
          {"deadline_seconds", absl::ToDoubleSeconds(load.deadline)},
          {"slo_seconds", absl::ToDoubleSeconds(load.slo)},
          {"repeats", options.repeats}};
}

Json RunInfoJson(const RunInfo& about) {
  return {{"command", about.command},
          {"date", about.date},
          {"machine", about.machine},
          {"load_average_before", about.load_average},
          {"server", about.server},
          {"server_version", about.server_version},
          {"numerics", about.numerics},
          {"client_version", about.client_version},
          {"commit", about.commit},
          {"server_pid", about.server_pid.has_value() ? Json(*about.server_pid) : Json()},
          {"foreign_cpu_before", Share(about.background_before)},
          {"foreign_cpu_after", Share(about.background_after)}};
}

Json PointJson(const SweepPoint& point) {
  return {{"percent", point.percent},
          {"offered_per_second", point.rate},
          {"answered_per_second", point.answered_per_second},
          {"good_per_second", point.good_per_second},
          {"good_share", point.good_share},
          {"p50_ns", point.p50_ns},
          {"p99_ns", point.p99_ns},
          {"p99.9_ns", point.p999_ns},
          {"lateness_p99_ns", point.lateness_p99_ns},
          {"rejected", point.rejected},
          {"failed", point.failed},
          {"unsent", point.unsent},
          {"foreign_cpu", Share(point.background)},
          {"noisy", point.noisy},
          {"under_slo", point.under_slo},
          {"runs", RunsJson(point.runs)}};
}

Json SweepJson(const SweepResult& sweep) {
  Json points = Json::array();
  for (const SweepPoint& point : sweep.points) points.push_back(PointJson(point));
  return {{"capacity_per_second", sweep.capacity},
          {"capacity_runs", RunsJson(sweep.capacity_runs)},
          {"points", points},
          {"knee", sweep.knee.has_value() ? Json(*sweep.knee) : Json()},
          {"cut_short", sweep.cut_short}};
}

}  // namespace

Json RunJson(const RunSummary& run) {
  Json out = CallsJson(run.total);
  out.update({{"seconds", run.seconds},
              {"offered", run.offered},
              {"unsent", run.unsent},
              {"waited", run.waited},
              {"cut_off", run.cut_off},
              {"interrupted", run.interrupted},
              {"good_share", run.good_share()},
              {"lateness_ns", QuantilesJson(run.lateness)},
              {"foreign_cpu", Share(run.background)},
              {"noisy", run.noisy()}});
  out["entries"] = Json::array();
  for (const CallSummary& entry : run.entries) out["entries"].push_back(CallsJson(entry));
  return out;
}

Json ReportJson(const Report& report) {
  Json out = Json::object();
  if (!report.runs.empty()) {
    out = RunJson(MedianRun(report.runs));
    out["runs"] = RunsJson(report.runs);
  }
  if (report.sweep.has_value()) out["sweep"] = SweepJson(*report.sweep);
  out["about"] = RunInfoJson(report.about);
  out["load"] = LoadJson(report.options);
  out["warnings"] = Warnings(report);
  out["interrupted"] = report.interrupted.empty() ? Json() : Json(report.interrupted);
  return out;
}

}  // namespace normd::client

// What the bench of the transports measures. Each section takes from `flags` what of it was chosen, by name.
// Threads: one calls, which must outlive the servers that it starts.
#ifndef NORMD_TESTS_BENCH_TRANSPORT_SECTIONS_H_
#define NORMD_TESTS_BENCH_TRANSPORT_SECTIONS_H_

#include "absl/status/status.h"
#include "tests/bench/report.h"
#include "tests/bench/suite.h"

namespace normd::bench {

// Calls/s and server CPU of the echo and of normd on each transport, with gRPC's client. Names: "echo unary 4 KiB n=1",
// "normd stream 1 MiB n=16", "echo unary 4 KiB n=64 c=64" (over 64 connections).
absl::Status MeasureGrpcClient(const Flags& flags, Report* report);

// The same with h2load, a client that costs little, so that the server has to be the slower of the two. Names: "echo
// h2load 4 KiB n=16".
absl::Status MeasureH2load(const Flags& flags, Report* report);

// What peers take of normd's memory: messages that never end, and connections that do nothing. Names: "unfinished",
// "idle connections".
absl::Status MeasureUnfinished(const Flags& flags, Report* report);
absl::Status MeasureIdleConnections(const Flags& flags, Report* report);

// How long a small call takes while large streams keep the only queue busy. Name: "small beside large".
absl::Status MeasureSmallBesideLarge(const Flags& flags, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_TRANSPORT_SECTIONS_H_

// The servers that the bench of the transports measures: this program again, with --serve=KIND.
#ifndef NORMD_TESTS_BENCH_TRANSPORT_SERVERS_H_
#define NORMD_TESTS_BENCH_TRANSPORT_SERVERS_H_

#include <string>
#include <string_view>

namespace normd::bench {

// Serves as KIND = SERVICE_TRANSPORT on `listen`. SERVICE: "echo"; "normd", which refuses nothing; "limited", normd
// with its own budget, and room for 16,384 connections. TRANSPORT: "grpc" or "native". Writes the address to standard
// output, and serves until the process is killed or the one that started it is no more. Returns, with an exit status,
// only when it cannot serve. REQUIRES: the process has done nothing else.
int Serve(const std::string& kind, const std::string& listen);

// Keeps 16 streams busy, each of which has one message at a time echoed, until the process is killed. `target` is the
// messages' size in MiB and the echo's address: "16_127.0.0.1:40112". Writes a line to standard output when all streams
// are under way. Serve does this as KIND = load_TARGET. Returns, with an exit status, only when a stream fails.
int LoadStreams(std::string_view target);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_TRANSPORT_SERVERS_H_

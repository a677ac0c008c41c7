// What this program does as --serve=KIND: one of the servers that are compared.
#ifndef NORMD_TESTS_BENCH_DATAPATH_SERVE_H_
#define NORMD_TESTS_BENCH_DATAPATH_SERVE_H_

#include <string>

namespace normd::bench {

// Completion queues of echo and normd, one thread each: normd's default, or NORMD_QUEUES of the environment.
int QueueCount();

// "echo", "normd" (which refuses nothing), "normd_default" (with its own limits), "bytes", "bytes_stock", "bytes_sync"
// or "floats" on `listen`; writes the address to standard output and serves until it is killed, or until the process
// that started it is no more. Returns, with an exit status, only when it cannot serve. All but bytes_stock tune malloc
// as normd does. REQUIRES: the process has done nothing else.
int Serve(const std::string& kind, const std::string& listen);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_SERVE_H_

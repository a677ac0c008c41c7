// normload, the load generator of normd. All of it is behind normload.h, where tests link it.
#include <malloc.h>
#include <signal.h>

#include <string>
#include <vector>

#include "client/normload/normload.h"

int main(int argc, char** argv) {
  // Stock glibc maps and unmaps every large message: hundreds of page faults a call, which would count as the server's
  // latency.
  // NOLINTBEGIN(concurrency-mt-unsafe): called before there is a second thread.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  // NOLINTEND(concurrency-mt-unsafe)
  // Beyond a limit of file sizes (ulimit -f) a write fails, which is told, instead of ending the process.
  signal(SIGXFSZ, SIG_IGN);
  normd::client::SilenceGrpc();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return normd::client::RunNormload(arguments, normd::client::ProcessTerminal());
}

// normctl, the command line of normd. All of it is behind commands.h, where tests link it.
#include <signal.h>

#include <string>
#include <vector>

#include "client/normctl/commands.h"

int main(int argc, char** argv) {
  // Beyond a limit of file sizes (ulimit -f) a write fails, which is told, instead of ending the process.
  signal(SIGXFSZ, SIG_IGN);
  normd::client::SilenceGrpc();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return normd::client::RunNormctl(arguments, normd::client::ProcessTerminal());
}

// normctl, the command line of normd. All of it is behind commands.h, where tests link it.
#include <string>
#include <vector>

#include "client/normctl/commands.h"

int main(int argc, char** argv) {
  normd::client::SilenceGrpc();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return normd::client::RunNormctl(arguments, normd::client::ProcessTerminal());
}

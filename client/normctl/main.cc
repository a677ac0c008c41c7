// normctl: the command line of normd. Everything is in commands.h; tests link it from there.
#include <string>
#include <vector>

#include "client/normctl/commands.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return normd::client::RunNormctl(arguments, normd::client::ProcessTerminal());
}

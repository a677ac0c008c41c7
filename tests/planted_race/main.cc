// A test of the ThreadSanitizer run itself: a data race in normd's namespace, through a lambda as our code has them.
// CTest fails unless it is reported under the very options and suppressions of the run.
#include <thread>

namespace normd {

int RaceOnACounter() {
  int counter = 0;
  std::thread other([&counter] { ++counter; });
  ++counter;
  other.join();
  return counter;
}

}  // namespace normd

int main() { return normd::RaceOnACounter() == 2 ? 0 : 1; }

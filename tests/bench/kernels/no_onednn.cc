#include "tests/bench/kernels/contestant.h"

namespace normd::bench {

std::unique_ptr<Contestant> MakeOneDnn() { return nullptr; }

std::string OneDnnText() { return "none: built without libdnnl-dev"; }

}  // namespace normd::bench

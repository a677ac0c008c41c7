#include "tests/bench/kernels/candidate.h"

namespace normd::bench {

std::unique_ptr<Candidate> MakeOneDnn() { return nullptr; }

std::string OneDnnText() { return "none: built without libdnnl-dev"; }

}  // namespace normd::bench

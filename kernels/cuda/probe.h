// What NVIDIA GPUs this machine has, as text for Describe and the start-up log.
// In the path: wiring calls it once at start; nothing on a request's path does. Two files implement it and the build
// links one: probe.cc where the CUDA Toolkit was found, no_cuda.cc where it was not.
// Threads: safe from any thread. Never fails and never throws: what went wrong is the text of an entry.
#ifndef NORMD_KERNELS_CUDA_PROBE_H_
#define NORMD_KERNELS_CUDA_PROBE_H_

#include <string>
#include <vector>

namespace normd {

struct CudaDeviceInfo {
  std::string name = {};    // "cuda:0"; "cuda" where no device could be listed
  std::string detail = {};  // what it is, or why there is none; whether it is used is not known here
};

// At least one entry, in the order of the driver's device numbers.
std::vector<CudaDeviceInfo> ProbeCudaDevices();

}  // namespace normd

#endif  // NORMD_KERNELS_CUDA_PROBE_H_

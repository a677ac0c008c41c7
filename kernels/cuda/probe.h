// Lists the NVIDIA GPUs of this machine, as text for Describe and the start-up log.
// In the path: the wiring calls it once at start; nothing on a request's path does. Two files implement this header and
// the build links one of them: probe.cc where the CUDA Toolkit was found, no_cuda.cc where it was not.
// Threads: safe from any thread. Never fails and never throws: a failure is the text of an entry.
#ifndef NORMD_KERNELS_CUDA_PROBE_H_
#define NORMD_KERNELS_CUDA_PROBE_H_

#include <string>
#include <vector>

namespace normd {

struct CudaDeviceInfo {
  std::string name = {};    // "cuda:0"; "cuda" where no device could be listed
  std::string detail = {};  // what the device is, or why there is none; not whether normd uses it
};

// At least one entry, in the order of the driver's device numbers.
std::vector<CudaDeviceInfo> ProbeCudaDevices();

}  // namespace normd

#endif  // NORMD_KERNELS_CUDA_PROBE_H_

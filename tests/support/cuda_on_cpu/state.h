// What the emulated runtime knows: the device, allocations, streams, events, faults to inject. Private to runtime.cc,
// memory.cc and cuda_on_cpu.cc. Threads: every field but the atomics is guarded by `mutex`, which Api holds around the
// body of a call and which no running kernel holds. Ownership: the state lives as long as the process and frees nothing
// that its callers forgot: that is theirs to find.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_STATE_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_STATE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"

struct CUstream_st {
  int device = 0;
};
struct CUmemPoolHandle_st {};

namespace cuda_on_cpu {

// What an event and those that were opened from its handle have in common.
struct EventRecord {
  uint64_t number = 0;  // never reused; what a handle names
  bool recorded = false;
  bool held = false;  // recorded while events were held: not completed
  std::chrono::steady_clock::time_point at;
};

}  // namespace cuda_on_cpu

struct CUevent_st {
  bool timed = true;
  bool interprocess = false;
  std::shared_ptr<cuda_on_cpu::EventRecord> record = {};
};

namespace cuda_on_cpu {

struct Allocation {
  size_t bytes = 0;
  bool device = false;  // else pinned host memory
  bool pooled = false;  // of the device's pool
  uint64_t number = 0;  // never reused, as addresses are
};

struct Fault {
  std::string api_name;
  int after_calls = 0;
  cudaError_t error = cudaSuccess;
  bool sticky = false;
};

struct KernelLimits {
  int shared_bytes = 48 * 1024;
  bool large_clusters = false;
};

struct State {
  std::mutex mutex;
  Device device;
  int devices = 1;
  std::set<int> contexts;  // the devices that cudaSetDevice has made one on
  uint64_t seed = 0;
  std::vector<Fault> faults;
  cudaError_t lost = cudaSuccess;  // what every call fails with
  uint64_t allocations_made = 0;
  std::map<uintptr_t, Allocation> allocations;
  std::map<uintptr_t, int> opened;  // IPC: base address -> how often
  std::set<const CUstream_st*> streams;
  std::set<const CUevent_st*> events;
  uint64_t events_made = 0;
  bool holds_events = false;
  std::map<const void*, KernelLimits> kernels;
  int64_t launches = 0;
  int64_t bytes_to_host = 0;
};

State& TheState();

// REQUIRES: mutex held. The null stream is one.
inline bool IsStream(const State& state, cudaStream_t stream) {
  return stream == nullptr || state.streams.contains(stream);
}

// REQUIRES: mutex held. The error that is injected into this call, or success.
cudaError_t Injected(State& state, const char* api_name);

// Keeps a failure for cudaGetLastError.
cudaError_t Keep(cudaError_t error);

// Every function of the API that can fail: an injected error, else what body(state) says, under the lock.
template <typename Body>
cudaError_t Api(const char* api_name, Body body) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const cudaError_t injected = Injected(state, api_name);
  const cudaError_t result = injected != cudaSuccess ? injected : body(state);
  return result == cudaErrorNotReady ? result : Keep(result);  // CUDA says of it that it is no error
}

// As Api, of a function that gives something back: once the device is lost, that is forgotten all the same.
template <typename Body>
cudaError_t ReleasingApi(const char* api_name, Body body) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const cudaError_t injected = Injected(state, api_name);
  if (injected != cudaSuccess && state.lost == cudaSuccess) return Keep(injected);
  const cudaError_t result = body(state);
  return Keep(injected != cudaSuccess ? injected : result);
}

// REQUIRES: mutex held.
inline bool IsDevice(const State& state, int device) { return device >= 0 && device < state.devices; }

// The last error of this host thread, and its current device.
cudaError_t& LastError();
int& CurrentDevice();

}  // namespace cuda_on_cpu

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_STATE_H_

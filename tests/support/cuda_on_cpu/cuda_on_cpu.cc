#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"

#include <cstddef>
#include <mutex>

#include "tests/support/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

State& TheState() {
  // Never destroyed: host threads may call to the end.
  static State& state = *new State;
  return state;
}

cudaError_t& LastError() {
  thread_local cudaError_t last = cudaSuccess;
  return last;
}

int& CurrentDevice() {
  thread_local int current = 0;
  return current;
}

cudaError_t Keep(cudaError_t error) {
  if (error != cudaSuccess) LastError() = error;
  return error;
}

cudaError_t Injected(State& state, const char* api_name) {
  if (state.lost != cudaSuccess) return state.lost;
  cudaError_t injected = cudaSuccess;
  for (size_t i = 0; i < state.faults.size();) {
    Fault& fault = state.faults[i];
    if (fault.api_name != api_name || fault.after_calls-- > 0) {
      ++i;
      continue;
    }
    injected = fault.error;
    if (fault.sticky) state.lost = fault.error;
    state.faults.erase(state.faults.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return injected;
}

void SetSeed(uint64_t seed) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.seed = seed;
}

void SetDevice(const Device& device) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.device = device;
}

void SetDeviceCount(int count) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.devices = count;
}

bool HasContext(int device) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.contexts.contains(device);
}

void FailCalls(const char* api_name, int after_calls, cudaError_t error, bool sticky) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.faults.push_back({api_name, after_calls, error, sticky});
}

void HoldEvents(bool hold) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.holds_events = hold;
  if (hold) return;
  for (const CUevent_st* event : state.events) event->record->held = false;
}

void Reset() {
  HoldEvents(false);
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.seed = 0;
  state.device = {};
  state.devices = 1;
  state.contexts.clear();
  state.faults.clear();
  state.lost = cudaSuccess;
  state.kernels.clear();
  state.launches = 0;
  state.bytes_to_host = 0;
  LastError() = cudaSuccess;
  CurrentDevice() = 0;
}

int64_t Launches() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.launches;
}

int64_t BytesToHost() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.bytes_to_host;
}

size_t BytesAllocated() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  size_t bytes = 0;
  for (const auto& [base, allocation] : state.allocations) bytes += allocation.bytes;
  return bytes;
}

int64_t ObjectsAlive() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  size_t alive = state.streams.size() + state.events.size();
  for (const auto& [base, times] : state.opened) alive += static_cast<size_t>(times);
  return static_cast<int64_t>(alive);
}

}  // namespace cuda_on_cpu

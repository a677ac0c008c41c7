// Memory of a CUDA device shared with a server on the same machine: tensors are normalised where they lie, and neither
// they nor the results leave the device. The library needs no CUDA; it takes the bytes of the handle.
//
//   const uint64_t bytes = 256 * 1024 * sizeof(float);
//   void* memory = nullptr;                                          // x, and y behind it
//   cudaMalloc(&memory, 2 * bytes);
//   cudaIpcMemHandle_t handle;
//   cudaIpcGetMemHandle(&handle, memory);
//   const std::unique_ptr<normd::client::CudaRegion> region =
//       client->RegisterCuda({.ipc_handle = std::string(handle.reserved, sizeof(handle)), .size_bytes = 2 * bytes})
//           .value();
//   normd::client::SetShared({region.get(), 0, bytes}, request.mutable_x());  // dtype and shape as always
//   normd::v1::OutputRequest* output = request.add_outputs();
//   output->set_kind(normd::v1::OUTPUT_KIND_Y);
//   normd::client::SetShared({region.get(), bytes, bytes}, output);
//   cudaStreamSynchronize(stream);                                   // x is written: the server waits for no stream
//   const auto response = client->Normalize(request);                // y is on the device, in memory + bytes
//
// With an event, the caller does not synchronise its stream: the server starts the call when the event has completed.
//
//   cudaEvent_t event;
//   cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess);
//   cudaIpcEventHandle_t event_handle;
//   cudaIpcGetEventHandle(&event_handle, event);
//   const std::unique_ptr<normd::client::CudaRegion> region =
//       client
//           ->RegisterCuda({.ipc_handle = std::string(handle.reserved, sizeof(handle)),
//                           .size_bytes = 2 * bytes,
//                           .event_handle = std::string(event_handle.reserved, sizeof(event_handle))})
//           .value();
//   ...                                                              // the request, as above
//   cudaEventRecord(event, stream);                                  // behind the kernels that write x
//   const auto response = client->Normalize(request);                // starts when they are done
//
// In the path: Client::RegisterCuda makes a region; requests name its parts with SetShared.
// Threads: every method is safe from any thread.
// Ownership: the caller owns the memory, which must outlive the region. A region may outlive its Client.
#ifndef NORMD_CLIENT_CPP_CUDA_REGION_H_
#define NORMD_CLIENT_CPP_CUDA_REGION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "normd/v1/normalizer.pb.h"
#include "normd/v1/tensor.pb.h"

namespace normd {
class Client;
}

namespace normd::client {

// A part of a CUDA allocation of this process.
struct CudaMemory {
  std::string ipc_handle;   // the 64 bytes of the cudaIpcMemHandle_t
  int device = 0;           // the number of the device on the server ("cuda:N" in Describe)
  uint64_t offset = 0;      // from the address that the handle names; 0 if that is the first byte
  uint64_t size_bytes = 0;  // from `offset`
  // The 64 bytes of the cudaIpcEventHandle_t of an event of this process, created with cudaEventDisableTiming |
  // cudaEventInterprocess; empty: none. The caller owns the event, which must outlive the region.
  std::string event_handle = {};
};

// A registration of CUDA memory; it lasts as long as the object and its connection.
class CudaRegion {
 public:
  // Unregisters, without waiting: requests that use the region finish first in the server, which keeps the memory open
  // until then. CUDA leaves undefined what happens when memory is freed while another process has it open. Free the
  // memory only after the replies of all requests that name it and after this destructor, and not at once.
  ~CudaRegion();
  CudaRegion(const CudaRegion&) = delete;
  CudaRegion& operator=(const CudaRegion&) = delete;

  // For SharedRange.region. A secret key: whoever knows the name can use the region.
  const std::string& name() const { return name_; }
  uint64_t size_bytes() const { return size_bytes_; }
  // False if the server has ended the registration, for instance because it shuts down. Requests then return NOT_FOUND.
  bool registered() const;

 private:
  friend class ::normd::Client;
  struct Call;
  CudaRegion(std::string name, uint64_t size_bytes, std::unique_ptr<Call> call);

  const std::string name_;
  const uint64_t size_bytes_;
  const std::unique_ptr<Call> call_;  // the open call: the server drops the region when it ends
};

// A part of a region, for one tensor. Borrows the region.
struct CudaBlock {
  const CudaRegion* region = nullptr;
  uint64_t offset = 0;  // from the region's first byte
  uint64_t size_bytes = 0;
};

// Names the block as the payload of `tensor` (x or residual.tensor), or as the place of an output (Y or H).
// Without an event, all CUDA work on the tensors must be complete before the request is sent: the server waits for no
// stream of this process. With one, the event must have been recorded behind that work before the request is sent; the
// server starts the call when the latest record has completed. If that does not happen, the call ends at its deadline
// (DEADLINE_EXCEEDED), or after a minute (FAILED_PRECONDITION, reason CUDA_EVENT_PENDING). Requests that are in flight
// together should each use a region with an event of its own, because a new record makes every waiting request wait for
// it. After the response, all work of the server is complete.
// While a request runs, and after an uncertain end, the rules of SetShared in <normd/shared_memory.h> hold.
void SetShared(const CudaBlock& block, v1::Tensor* tensor);
void SetShared(const CudaBlock& block, v1::OutputRequest* output);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_CUDA_REGION_H_

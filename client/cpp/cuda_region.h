// Memory of a CUDA device shared with a server on the same machine: tensors that are there already are normalised
// there, and neither they nor the results leave the device. This library knows no CUDA: it takes what
// cudaIpcGetMemHandle gives. In the path: made by Client::RegisterCuda, named by requests with SetShared. Threads:
// every method is safe from any thread. A region may outlive its Client.
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

// A part of an allocation of this process.
struct CudaMemory {
  std::string ipc_handle;   // the bytes of the cudaIpcMemHandle_t, 64
  int device = 0;           // as the server counts its devices
  uint64_t offset = 0;      // from what the handle names; 0 when the handle is that of the first byte
  uint64_t size_bytes = 0;  // from there
};

// Registered until it goes.
class CudaRegion {
 public:
  // Unregisters. Does not wait: requests that use the region finish first in the server, which has the memory open
  // until then. CUDA leaves undefined what happens when memory is freed while another process has it open, so free it
  // after the replies of all requests that name it have come, and not at once.
  ~CudaRegion();
  CudaRegion(const CudaRegion&) = delete;
  CudaRegion& operator=(const CudaRegion&) = delete;

  const std::string& name() const { return name_; }  // for SharedRange.region; a key: whoever knows it can use it
  uint64_t size_bytes() const { return size_bytes_; }
  // False: the server has ended the registration, as when it shuts down; requests get NOT_FOUND.
  bool registered() const;

 private:
  friend class ::normd::Client;
  struct Call;
  CudaRegion(std::string name, uint64_t size_bytes, std::unique_ptr<Call> call);

  const std::string name_;
  const uint64_t size_bytes_;
  const std::unique_ptr<Call> call_;  // the server drops the region when this ends
};

// A part of a region, for one tensor.
struct CudaBlock {
  const CudaRegion* region = nullptr;
  uint64_t offset = 0;  // from the region's first byte
  uint64_t size_bytes = 0;
};

// Names the block as the payload of `tensor` (x, residual.tensor), or as the place of an output (Y, H). What was
// written there on a stream must be done before the request is sent: the server waits for no stream of this process.
// While a request is under way, and after one that ended without an answer, as with the blocks of shared_memory.h.
void SetShared(const CudaBlock& block, v1::Tensor* tensor);
void SetShared(const CudaBlock& block, v1::OutputRequest* output);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_CUDA_REGION_H_

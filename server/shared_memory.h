// The shared memory of a server: the table of regions and a registrar beside each Unix socket of gRPC.
// In the path: server.cc makes one before gRPC listens, and lends the table to it.
// Threads: Start, Stop and the destructor are called from one thread; `table` is safe from any.
#ifndef NORMD_SERVER_SHARED_MEMORY_H_
#define NORMD_SERVER_SHARED_MEMORY_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config.h"
#include "server/obs/log.h"
#include "server/shm/region_table.h"
#include "server/shm/registrar.h"

namespace normd {

// What --max_regions, --max_region_bytes and --shm_prefix say. One owner may have a quarter of the regions, and all of
// the bytes: a single training job may be all there is.
RegionLimits RegionLimitsOf(const Config& config);

// The driver's way to memory of other processes on `devices`; none: there is no CUDA memory to share. What cannot be
// closed is told to `log`, which must outlive every range.
CudaOpener CudaIpcOpener(std::vector<int> devices, Log* log);

class SharedMemory {
 public:
  // Listens beside each of `unix_paths`; CUDA memory is opened with `cuda`, large regions are unmapped by `work_pool`,
  // which must outlive this and every range. REQUIRES: config.SharedMemoryOn(). The errors of PrepareUnixSocket and
  // Registrar::Start; nothing is left behind.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Start(const Config& config,
                                                             const std::vector<std::string>& unix_paths,
                                                             CudaOpener cuda, WorkPool* work_pool = nullptr);

  // Takes no more registrations and drops all regions, those in use after their requests. Idempotent.
  void Stop() { registrars_.clear(); }

  RegionTable& table() { return table_; }

 private:
  SharedMemory(RegionLimits limits, CudaOpener cuda, WorkPool* work_pool)
      : table_(std::move(limits), std::move(cuda), work_pool) {}

  RegionTable table_;
  std::vector<std::unique_ptr<Registrar>> registrars_;  // use the table
};

}  // namespace normd

#endif  // NORMD_SERVER_SHARED_MEMORY_H_

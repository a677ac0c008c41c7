#include "kernels/cuda/staging.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/cuda/status.h"

namespace normd::cuda {
namespace {

// How long a wait polls before it sleeps.
constexpr std::chrono::microseconds kAskFor(50);

// Copies those bytes of `parts` that lie in [begin, end) of the layout to or from `piece`, which holds that window.
// `next` is the first part that may lie in the window, and is moved on.
void CopyWindow(absl::Span<const HostBytes> parts, int64_t begin, int64_t end, char* piece, bool to_piece,
                size_t* next) {
  while (*next < parts.size() && parts[*next].offset + parts[*next].size_bytes <= begin) ++*next;
  for (size_t i = *next; i < parts.size() && parts[i].offset < end; ++i) {
    const int64_t from = std::max(begin, parts[i].offset);
    const int64_t to = std::min(end, parts[i].offset + parts[i].size_bytes);
    if (from >= to) continue;
    char* const host = parts[i].data + (from - parts[i].offset);
    const auto size = static_cast<size_t>(to - from);
    if (to_piece) {
      std::memcpy(piece + (from - begin), host, size);
    } else {
      std::memcpy(host, piece + (from - begin), size);
    }
  }
}

int64_t EndOf(absl::Span<const HostBytes> parts) {
  int64_t end = 0;
  for (const HostBytes& part : parts) end = std::max(end, part.offset + part.size_bytes);
  return end;
}

}  // namespace

Staging::~Staging() {
  for (Piece& piece : pieces_) {
    if (piece.in_use) cudaEventSynchronize(piece.done);
    if (piece.done != nullptr) cudaEventDestroy(piece.done);
    if (piece.data != nullptr) cudaFreeHost(piece.data);
  }
}

absl::Status Staging::Start() {
  for (Piece& piece : pieces_) {
    void* data = nullptr;
    NORMD_CUDA_RETURN_STATUS(cudaMallocHost(&data, kPieceBytes), "cudaMallocHost");
    piece.data = static_cast<char*>(data);
    // A long wait must sleep, because there may be more workers than cores to wait on.
    NORMD_CUDA_RETURN_STATUS(cudaEventCreateWithFlags(&piece.done, cudaEventDisableTiming | cudaEventBlockingSync),
                             "cudaEventCreate");
  }
  return absl::OkStatus();
}

absl::Status Staging::Wait(Piece* piece) {
  if (!piece->in_use) return absl::OkStatus();
  piece->in_use = false;
  // Being woken takes longer than a small job, so short waits poll and longer ones sleep.
  const auto asked_until = std::chrono::steady_clock::now() + kAskFor;
  do {
    const cudaError_t error = cudaEventQuery(piece->done);
    if (error != cudaErrorNotReady) return StatusOf(error, "cudaEventQuery");
    cudaGetLastError();  // "not ready" is no error
  } while (std::chrono::steady_clock::now() < asked_until);
  NORMD_CUDA_RETURN_STATUS(cudaEventSynchronize(piece->done), "cudaEventSynchronize");
  return absl::OkStatus();
}

absl::Status Staging::Upload(absl::Span<const HostBytes> parts, char* device, cudaStream_t stream) {
  const int64_t end = EndOf(parts);
  size_t next = 0;
  int turn = 0;
  for (int64_t at = 0; at < end; at += kPieceBytes, turn = (turn + 1) % kPieces) {
    Piece& piece = pieces_[turn];
    if (absl::Status status = Wait(&piece); !status.ok()) return status;
    const int64_t stop = std::min(end, at + kPieceBytes);
    CopyWindow(parts, at, stop, piece.data, true, &next);
    NORMD_CUDA_RETURN_STATUS(
        cudaMemcpyAsync(device + at, piece.data, static_cast<size_t>(stop - at), cudaMemcpyHostToDevice, stream),
        "cudaMemcpy to the device");
    NORMD_CUDA_RETURN_STATUS(cudaEventRecord(piece.done, stream), "cudaEventRecord");
    piece.in_use = true;
  }
  return absl::OkStatus();
}

absl::Status Staging::Download(absl::Span<const HostBytes> parts, const char* device, cudaStream_t stream) {
  const int64_t end = EndOf(parts);
  const int64_t windows = (end + kPieceBytes - 1) / kPieceBytes;
  size_t next = 0;
  // The device copies window w while window w - kPieces + 1 is emptied.
  for (int64_t w = 0; w < windows + kPieces; ++w) {
    Piece& piece = pieces_[w % kPieces];
    if (absl::Status status = Wait(&piece); !status.ok()) return status;
    const int64_t old = w - kPieces;
    if (old >= 0) {
      CopyWindow(parts, old * kPieceBytes, std::min(end, (old + 1) * kPieceBytes), piece.data, false, &next);
    }
    if (w >= windows) continue;
    const int64_t at = w * kPieceBytes;
    NORMD_CUDA_RETURN_STATUS(
        cudaMemcpyAsync(piece.data, device + at, static_cast<size_t>(std::min(end, at + kPieceBytes) - at),
                        cudaMemcpyDeviceToHost, stream),
        "cudaMemcpy from the device");
    NORMD_CUDA_RETURN_STATUS(cudaEventRecord(piece.done, stream), "cudaEventRecord");
    piece.in_use = true;
  }
  // This waits for the stream even if nothing comes back. cudaStreamSynchronize would spin.
  NORMD_CUDA_RETURN_STATUS(cudaEventRecord(pieces_[0].done, stream), "cudaEventRecord");
  pieces_[0].in_use = true;
  return Wait(&pieces_[0]);
}

}  // namespace normd::cuda

// The libraries of gRPC and oneTBB are not built for ThreadSanitizer, so it cannot see that starting an operation
// happens before the completion queue returns its tag, that sending a slice happens before its destroy callback, or
// that work handed to TBB happens after what its giver did. These two calls say so; they are the only ones, and do
// nothing without TSan. Thread-safe.
#ifndef NORMD_KERNELS_BASE_TSAN_ANNOTATIONS_H_
#define NORMD_KERNELS_BASE_TSAN_ANNOTATIONS_H_

#if defined(__SANITIZE_THREAD__) || NORMD_TSAN_HANDOVER
#define NORMD_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NORMD_TSAN 1
#endif
#endif

#ifdef NORMD_TSAN
extern "C" {
void __tsan_release(void* address);
void __tsan_acquire(void* address);
}
#endif

namespace normd {

// What was done so far happens before what follows the next TsanAcquire of the same address.
inline void TsanRelease([[maybe_unused]] void* address) {
#ifdef NORMD_TSAN
  __tsan_release(address);
#endif
}

inline void TsanAcquire([[maybe_unused]] void* address) {
#ifdef NORMD_TSAN
  __tsan_acquire(address);
#endif
}

}  // namespace normd

#undef NORMD_TSAN

#endif  // NORMD_KERNELS_BASE_TSAN_ANNOTATIONS_H_

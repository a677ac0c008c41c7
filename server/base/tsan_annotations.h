// Tells ThreadSanitizer about hand-overs between threads that it cannot see, because the libraries of gRPC are not
// built for it: an operation is started before the completion queue returns its tag, and a slice is sent before its
// destroy callback runs. In the path: the transport calls it; these two functions are the only annotations of the
// project. They do nothing without ThreadSanitizer. Thread-safe.
#ifndef NORMD_SERVER_BASE_TSAN_ANNOTATIONS_H_
#define NORMD_SERVER_BASE_TSAN_ANNOTATIONS_H_

#if defined(__SANITIZE_THREAD__)
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

// Everything that this thread did so far happens before everything that follows the next TsanAcquire of `address`.
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

#endif  // NORMD_SERVER_BASE_TSAN_ANNOTATIONS_H_

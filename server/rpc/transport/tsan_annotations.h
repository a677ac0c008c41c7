// gRPC's libraries are not built for ThreadSanitizer, so it cannot see that starting an operation happens before the
// completion queue returns its tag, or that sending a slice happens before its destroy callback. These two calls say
// so; they are the only ones, and nothing without TSan.
#ifndef NORMD_SERVER_RPC_TRANSPORT_TSAN_ANNOTATIONS_H_
#define NORMD_SERVER_RPC_TRANSPORT_TSAN_ANNOTATIONS_H_

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

namespace normd::rpc {

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

}  // namespace normd::rpc

#undef NORMD_TSAN

#endif  // NORMD_SERVER_RPC_TRANSPORT_TSAN_ANNOTATIONS_H_

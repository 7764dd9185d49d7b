// Which sanitizer this build has, where code must know: address ranges and fences that
// ThreadSanitizer cannot follow.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define TUBE_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TUBE_THREAD_SANITIZER 1
#endif
#endif
#ifndef TUBE_THREAD_SANITIZER
#define TUBE_THREAD_SANITIZER 0
#endif

#if TUBE_THREAD_SANITIZER
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace tube {

inline constexpr bool kThreadSanitizer = TUBE_THREAD_SANITIZER != 0;

// Order that runs through another process or the simulated GPU, where ThreadSanitizer cannot see
// it: what happened before release_order() of an address happened before acquire_order() of it.
#if TUBE_THREAD_SANITIZER
inline void acquire_order(void* address) { __tsan_acquire(address); }
inline void release_order(void* address) { __tsan_release(address); }
#else
inline void acquire_order(void*) {}
inline void release_order(void*) {}
#endif

}  // namespace tube

// Which sanitizer this build has, where code must know: address ranges and fences that ThreadSanitizer cannot follow.
#pragma once

namespace tube {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
inline constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace tube

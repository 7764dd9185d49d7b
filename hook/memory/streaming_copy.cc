#include "hook/memory/streaming_copy.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace tube::hook {

#if defined(__x86_64__)

void streaming_copy(std::byte* dst, const std::byte* src, uint64_t bytes) {
  constexpr uint64_t kLine = 64;
  // Whole lines only: a line that is left half written costs a read of memory.
  const uint64_t head =
      std::min<uint64_t>(bytes, (kLine - reinterpret_cast<uintptr_t>(dst) % kLine) % kLine);
  std::memcpy(dst, src, head);
  dst += head, src += head, bytes -= head;
  for (; bytes >= kLine; dst += kLine, src += kLine, bytes -= kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(src);
    auto* to = reinterpret_cast<__m128i*>(dst);
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1),
                  c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  std::memcpy(dst, src, bytes);
  // Streaming stores are not ordered by a release.
  _mm_sfence();
}

#else

void streaming_copy(std::byte* dst, const std::byte* src, uint64_t bytes) {
  std::memcpy(dst, src, bytes);
}

#endif

}  // namespace tube::hook

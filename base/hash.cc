// xxHash is compiled in (header-only): the hook must not bring another library into a program.
#define XXH_INLINE_ALL 1
#include "base/hash.h"

#include <xxhash.h>

namespace tube {

uint64_t hash64(const void* data, size_t size_bytes) { return XXH3_64bits(data, size_bytes); }

Hash128 hash128(const void* data, size_t size_bytes) {
  const XXH128_hash_t h = XXH3_128bits(data, size_bytes);
  return Hash128{h.low64, h.high64};
}

}  // namespace tube

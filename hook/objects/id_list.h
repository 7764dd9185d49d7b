// The wire ids of an array of handles, for generated calls that take one. A few on the stack, more
// on the heap: such calls build graphs and wait for an answer anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "hook/objects/support.h"

namespace tube::hook {

class IdList {
 public:
  IdList() = default;
  IdList(const IdList&) = delete;
  IdList& operator=(const IdList&) = delete;
  ~IdList() {
    if (ids_ != few_) std::free(ids_);
  }

  // CUDA_ERROR_INVALID_HANDLE when one of them names nothing.
  template <class T>
  CUresult fill(wire::Kind kind, const T* handles, size_t count) {
    if (count > kFew) ids_ = static_cast<uint64_t*>(std::malloc(count * sizeof(uint64_t)));
    if (ids_ == nullptr) {
      ids_ = few_;
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < count; ++i)
      if (CUresult r = id_of(kind, reinterpret_cast<const void*>(handles[i]), &ids_[i])) return r;
    return CUDA_SUCCESS;
  }
  const uint64_t* data() const { return ids_; }

 private:
  static constexpr size_t kFew = 32;
  uint64_t few_[kFew];
  uint64_t* ids_ = few_;
};

}  // namespace tube::hook

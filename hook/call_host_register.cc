// cuMemHostRegister: the proxy cannot pin this process's own pages, so they are replaced. A pinned range of the same size is
// taken, the bytes are copied there, and the registered addresses are remapped to it: both addresses then show the same
// memory. The GPU only knows the pinned one, so the device pointer differs from the host pointer, which CUDA allows when
// the attribute CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM is 0.
//
// Not forwarded yet: copies name the host address, which would still be staged. Such memory stays what it was, pageable
// memory: registering answers NOT_SUPPORTED, and programs fall back to it.
#include "hook/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  (void)Flags;
  if (p == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  return unsupported("cuMemHostRegister", "the pages belong to this process; cuMemHostAlloc gives pinned memory");
}

CUresult cuMemHostUnregister(void* p) { return p == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED; }

}  // namespace tube::hook

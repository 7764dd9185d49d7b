// cuGetProcAddress: the table and its rules are protocol/proc_lookup.h. v1 answers an unknown name
// with an error, v2 says why in the status; which then sets the pointer to NULL.
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"
#include "protocol/proc_lookup.h"

namespace tube::hook {

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = lookup(symbol, cudaVersion, flags, pfn, symbolStatus);
  // Documented: for a caller that asks for the status, a missing symbol is a status and no error.
  return result == CUDA_ERROR_NOT_FOUND && symbolStatus != nullptr ? CUDA_SUCCESS : result;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  if (pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  void* found = nullptr;
  const CUresult result = hook::cuGetProcAddress_v2(symbol, &found, cudaVersion, flags, nullptr);
  if (result == CUDA_SUCCESS) *pfn = found;
  return result;
}

}  // namespace tube::hook

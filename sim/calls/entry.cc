// cuGetProcAddress, cuGetExportTable, and the answer of everything that is not simulated.
#include "sim/calls/entry.h"

#include <cstdio>
#include <cstring>

namespace tube::sim {

int unsupported(const char* name, std::atomic<bool>& told) {
  if (!told.exchange(true)) std::fprintf(stderr, "tube sim: %s is not simulated\n", name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

namespace {

enum class Lookup : uint8_t { kFound, kUnknown, kTooOld };

// A per-thread request for a name that has per-thread forms considers only those; otherwise only
// the plain ones.
Lookup find(const char* name, int version, bool per_thread, void** symbol) {
  *symbol = nullptr;
  bool known = false, has_per_thread = false;
  for (size_t i = 0; i < kProcTableSize; ++i) {
    if (std::strcmp(kProcTable[i].base, name) != 0) continue;
    known = true;
    has_per_thread |= kProcTable[i].per_thread;
  }
  if (!known) return Lookup::kUnknown;
  bool want = per_thread && has_per_thread;
  for (size_t i = 0; i < kProcTableSize; ++i) {
    const ProcEntry& e = kProcTable[i];
    if (e.per_thread == want && e.version <= version && std::strcmp(e.base, name) == 0)
      *symbol = e.symbol;
  }
  return *symbol == nullptr ? Lookup::kTooOld : Lookup::kFound;
}

CUresult get(const char* symbol, void** pfn, int version, cuuint64_t flags,
             CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || pfn == nullptr || flags > 3 || version > kDriverVersion)
    return CUDA_ERROR_INVALID_VALUE;
  if (version < 0) version = kDriverVersion;  // a version is unsigned to the driver
  Lookup result =
      find(symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, pfn);
  if (status != nullptr) {
    *status = result == Lookup::kFound     ? CU_GET_PROC_ADDRESS_SUCCESS
              : result == Lookup::kUnknown ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                                           : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    return CUDA_SUCCESS;
  }
  return result == Lookup::kFound ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                                  cuuint64_t flags) {
  SIM_ENTER(kNothing);
  if (pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  void* found = nullptr;
  const CUresult r = get(symbol, &found, cudaVersion, flags, nullptr);
  if (r == CUDA_SUCCESS) *pfn = found;
  return r;
}

SIM_API CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion,
                                     cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* symbolStatus) {
  SIM_ENTER(kNothing);
  return get(symbol, pfn, cudaVersion, flags, symbolStatus);
}

// None of NVIDIA's private tables exists here; the CUDA runtime needs some of them and therefore
// cannot start.
SIM_API CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  SIM_ENTER(kNothing);
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

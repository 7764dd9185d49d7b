#include "protocol/proc_lookup.h"

#include <algorithm>
#include <cstring>

namespace tube::hook {
namespace {

constexpr uint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

// The newest row of [first, last) with this per_thread that is not newer than version, or nullptr.
const ProcRow* newest(const ProcRow* first, const ProcRow* last, bool per_thread, int version) {
  const ProcRow* found = nullptr;
  for (const ProcRow* row = first; row != last; ++row)
    if (row->per_thread == per_thread && row->version <= version) found = row;
  return found;
}

}  // namespace

CUresult lookup(const char* name, int version, uint64_t flags, void** out,
                CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || out == nullptr || (flags & ~kKnownFlags) != 0 ||
      version > kHeaderCudaVersion) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (version < 0) version = kHeaderCudaVersion;  // a version is unsigned to the driver
  const ProcRow* end = kProcRows + kProcRowCount;
  const ProcRow* first = std::lower_bound(
      kProcRows, end, name,
      [](const ProcRow& row, const char* wanted) { return std::strcmp(row.name, wanted) < 0; });
  const ProcRow* last = first;
  bool has_per_thread = false;
  for (; last != end && std::strcmp(last->name, name) == 0; ++last)
    has_per_thread |= last->per_thread;
  const bool per_thread =
      has_per_thread && (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const ProcRow* row = newest(first, last, per_thread, version);
  *out = row != nullptr ? row->pointer : nullptr;
  if (status != nullptr) {
    *status = row != nullptr  ? CU_GET_PROC_ADDRESS_SUCCESS
              : first == last ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                              : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  }
  return row != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace tube::hook

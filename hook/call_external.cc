// What belongs to other APIs or to hardware that few devices have. Descriptors of graphics APIs are checked as the driver checks them and
// then refused: a program that has one has a graphics context on a GPU of its own, beside the proxy (docs/limits.md).
#include <fcntl.h>

#include <cstring>

#include "base/log.h"
#include "hook/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

template <class Desc>
bool reserved_is_zero(const Desc& desc) {
  for (const unsigned int word : desc.reserved) {
    if (word != 0) return false;
  }
  return true;
}

CUresult refuse_descriptor(int fd, const char* name) {
  if (fcntl(fd, F_GETFD) < 0) return CUDA_ERROR_UNKNOWN;
  return unsupported(name, "objects of graphics APIs are not forwarded");
}

// `peer` -1: the host.
CUresult atomic_capabilities(unsigned* capabilities, const CUatomicOperation* operations, unsigned count, CUdevice device, CUdevice peer,
                             bool with_peer) {
  constexpr unsigned kMost = 64;
  if (capabilities == nullptr || operations == nullptr || count == 0 || count > kMost) return CUDA_ERROR_INVALID_VALUE;
  int32_t number = 0, peer_number = -1;
  if (const CUresult r = device_number(device, &number); r != CUDA_SUCCESS) return r;
  if (with_peer) {
    if (const CUresult r = device_number(peer, &peer_number); r != CUDA_SUCCESS) return r;
    if (peer == device) return CUDA_ERROR_INVALID_DEVICE;
  }
  const auto bytes = static_cast<uint32_t>(count * sizeof *operations);
  wire::tubeAtomicCapabilities_reply reply{};
  ReplyBlobs blobs;
  CUresult result;
  {
    Request<wire::tubeAtomicCapabilities> r(blob_room(bytes));
    r->device = number;
    r->peer = peer_number;
    r.put(&wire::tubeAtomicCapabilities::operations, operations, bytes);
    result = r.call(&reply, &blobs);
  }
  if (result != CUDA_SUCCESS) return result;
  const auto answer = blobs.get(reply.capabilities);
  if (answer.size() != count * sizeof *capabilities) return CUDA_ERROR_UNKNOWN;
  std::memcpy(capabilities, answer.data(), answer.size());
  return CUDA_SUCCESS;
}

}  // namespace

// ---- external memory and semaphores -----------------------------------------------------------------------------------

CUresult cuImportExternalMemory(CUexternalMemory* extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* memHandleDesc) {
  if (extMem_out == nullptr || memHandleDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC& desc = *memHandleDesc;
  if (desc.type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD || desc.size == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((desc.flags & ~unsigned{CUDA_EXTERNAL_MEMORY_DEDICATED}) != 0 || !reserved_is_zero(desc)) return CUDA_ERROR_INVALID_VALUE;
  return refuse_descriptor(desc.handle.fd, "cuImportExternalMemory");
}
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr*, CUexternalMemory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC*) { return CUDA_ERROR_INVALID_VALUE; }
CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray*, CUexternalMemory, const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC*) {
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuDestroyExternalMemory(CUexternalMemory) { return CUDA_ERROR_INVALID_VALUE; }

CUresult cuImportExternalSemaphore(CUexternalSemaphore* extSem_out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* semHandleDesc) {
  if (extSem_out == nullptr || semHandleDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC& desc = *semHandleDesc;
  const bool timeline = desc.type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  if (!timeline && desc.type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_INVALID_VALUE;
  if (desc.flags != 0 || !reserved_is_zero(desc)) return CUDA_ERROR_INVALID_VALUE;
  if (timeline && fcntl(desc.handle.fd, F_GETFD) < 0) return CUDA_ERROR_INVALID_VALUE;
  return refuse_descriptor(desc.handle.fd, "cuImportExternalSemaphore");
}
// Nothing was ever imported: no handle is one.
CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore*, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS*, unsigned int, CUstream) {
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore*, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS*, unsigned int, CUstream) {
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuDestroyExternalSemaphore(CUexternalSemaphore) { return CUDA_ERROR_INVALID_VALUE; }

// ---- features of a device ---------------------------------------------------------------------------------------------

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations, unsigned int count, CUdevice dev) {
  return atomic_capabilities(capabilities, operations, count, dev, 0, false);
}
CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations, unsigned int count,
                                          CUdevice srcDevice, CUdevice dstDevice) {
  return atomic_capabilities(capabilities, operations, count, srcDevice, dstDevice, true);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle*, const CUmulticastObjectProp*) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t, size_t, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t, unsigned long long) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle, CUdevice, size_t, size_t) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMulticastGetGranularity(size_t*, const CUmulticastObjectProp*, CUmulticastGranularity_flags) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMemBatchDecompressAsync(CUmemDecompressParams*, size_t, unsigned int, size_t*, CUstream) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType, unsigned long long flags) {
  if (handle == nullptr || dptr == 0 || size == 0 || handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) return CUDA_ERROR_INVALID_VALUE;
  wire::tubeRangeHandle_reply reply{};
  CUresult result;
  {
    Request<wire::tubeRangeHandle> r;
    r->dptr = dptr;
    r->bytes = size;
    r->flags = flags;
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return result;
  Result<UniqueFd> fd = take_file(reply.token);
  if (!fd) {
    log_error("a descriptor of device memory did not arrive: %s", fd.error().message.c_str());
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  const int number = fd->release();
  std::memcpy(handle, &number, sizeof number);
  return CUDA_SUCCESS;
}

}  // namespace tube::hook

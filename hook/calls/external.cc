// Calls for hardware that few devices have: atomics over links, multicast, decompression,
// descriptors of device memory.
#include <cstring>

#include "hook/memory/copy.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

// `peer` -1: the host.
CUresult atomic_capabilities(unsigned* capabilities, const CUatomicOperation* operations,
                             unsigned count, CUdevice device, CUdevice peer, bool with_peer) {
  constexpr unsigned kMost = 64;
  if (capabilities == nullptr || operations == nullptr || count == 0 || count > kMost)
    return CUDA_ERROR_INVALID_VALUE;
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

// ---- features of a device ----

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities,
                                           const CUatomicOperation* operations, unsigned int count,
                                           CUdevice dev) {
  return atomic_capabilities(capabilities, operations, count, dev, 0, false);
}
CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities,
                                          const CUatomicOperation* operations, unsigned int count,
                                          CUdevice srcDevice, CUdevice dstDevice) {
  return atomic_capabilities(capabilities, operations, count, srcDevice, dstDevice, true);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle*, const CUmulticastObjectProp*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle, CUdevice) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle,
                            size_t, size_t, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t,
                             unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle, CUdevice, size_t, size_t) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMulticastGetGranularity(size_t*, const CUmulticastObjectProp*,
                                   CUmulticastGranularity_flags) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemBatchDecompressAsync(CUmemDecompressParams*, size_t, unsigned int, size_t*,
                                   CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags) {
  if (handle == nullptr || dptr == 0 || size == 0 ||
      handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
    return CUDA_ERROR_INVALID_VALUE;
  note_memory_shared();
  wire::tubeRangeHandle_reply reply{};
  CUresult result;
  {
    Request<wire::tubeRangeHandle> r;
    r->dptr = dptr;
    r->bytes = size;
    r->flags = flags;
    result = r.call(&reply);
  }
  return result == CUDA_SUCCESS
             ? hand_over_file(reply.token, "a descriptor of device memory", handle)
             : result;
}

}  // namespace tube::hook

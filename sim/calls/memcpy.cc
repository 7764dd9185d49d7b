// cuMemcpy*: each call describes its copy as a CUDA_MEMCPY3D and hands it to copy().
//
// Waiting follows NVIDIA's "API synchronization behavior": synchronous forms wait unless both sides
// are device memory or arrays; asynchronous forms take the bytes of a pageable source at once, and
// wait when the destination is pageable.
#include <cstring>

#include "sim/graphs/capture.h"
#include "sim/machine/copy.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {

// kPeers: synchronous, and the contexts' later work comes behind it.
enum class Sync : uint8_t { kAsync, kSync, kBatch, kPeers };

namespace {

bool pageable(const void* p) {
  auto range = state().map.find(reinterpret_cast<uint64_t>(p));
  return !range || !range->is_host();
}

// Pinned, registered or managed memory named by its device address.
bool touches_host_memory(const CUDA_MEMCPY3D& c) {
  const auto host = [](CUdeviceptr p) {
    auto range = state().map.find(p);
    return range && (range->is_host() || range->kind == RangeKind::kManaged);
  };
  return (c.srcMemoryType == CU_MEMORYTYPE_DEVICE && host(c.srcDevice)) ||
         (c.dstMemoryType == CU_MEMORYTYPE_DEVICE && host(c.dstDevice));
}

// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of either side.
bool touches_waiting_memory(const CUDA_MEMCPY3D& c) {
  const auto waiting = [](CUdeviceptr p) {
    auto range = state().map.find(p);
    return range && range->sync_memops;
  };
  return (c.srcMemoryType == CU_MEMORYTYPE_DEVICE && waiting(c.srcDevice)) ||
         (c.dstMemoryType == CU_MEMORYTYPE_DEVICE && waiting(c.dstDevice));
}

// Both sides are memory of the host, managed memory apart: the driver copies with the CPU, behind
// the stream's work, in every form but batches (H200).
bool between_host_memory(const CUDA_MEMCPY3D& c) {
  const auto host = [](CUmemorytype type, uint64_t address) {
    if (type == CU_MEMORYTYPE_ARRAY) return false;
    auto range = state().map.find(address);
    return range ? range->is_host() : type == CU_MEMORYTYPE_HOST;
  };
  const auto at = [](CUmemorytype type, const void* p, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(p) : device;
  };
  return host(c.srcMemoryType, at(c.srcMemoryType, c.srcHost, c.srcDevice)) &&
         host(c.dstMemoryType, at(c.dstMemoryType, c.dstHost, c.dstDevice));
}

CUresult copy(Context* context, CUDA_MEMCPY3D c, CUstream handle, Sync sync) {
  State& s = state();
  Lock lock(s.mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  if (CUresult r = check_capture_valid(stream)) return r;
  if (CUresult r = check_copy(stream->context, c)) return r;
  bool from_host = c.srcMemoryType == CU_MEMORYTYPE_HOST,
       to_host = c.dstMemoryType == CU_MEMORYTYPE_HOST;
  bool captured = stream->capture != nullptr;
  CopyWork work;
  work.copy = c;
  bool block = sync == Sync::kSync &&
               (from_host || to_host || touches_host_memory(c) || touches_waiting_memory(c));
  block = block || sync == Sync::kPeers || (sync != Sync::kBatch && between_host_memory(c));
  if (c.WidthInBytes != 0 && c.Height != 0 && c.Depth != 0 && !captured) {
    if (from_host && pageable(c.srcHost) && !block) {
      lock.unlock();
      stage_source(work);
      lock.lock();
      if (handle != nullptr && live<Stream>(s, handle, Kind::kStream) != stream &&
          stream != context->legacy_stream && !stream->per_thread)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;  // another thread destroyed the stream meanwhile
    }
    if (to_host && pageable(c.dstHost)) block = true;
  }
  FencePtr fence;
  if (CUresult r = issue(lock, stream, std::move(work), &fence)) return r;
  // Asynchronous copies do not show what kernels printed, though they may wait (H200, 13.0).
  const bool shows = (sync == Sync::kSync || sync == Sync::kPeers) && !captured;
  Context* owner = stream->context;
  if (block && !captured) wait(lock, fence);
  lock.unlock();
  if (shows) flush_prints(owner);
  return block && !captured ? owner->error.load() : CUDA_SUCCESS;
}

CUDA_MEMCPY3D flat(size_t bytes) {
  CUDA_MEMCPY3D c{};
  c.WidthInBytes = bytes;
  c.Height = 1;
  c.Depth = 1;
  return c;
}

CUDA_MEMCPY3D host_to_device(CUdeviceptr dst, const void* src, size_t bytes) {
  CUDA_MEMCPY3D c = flat(bytes);
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = src;
  c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.dstDevice = dst;
  return c;
}

CUDA_MEMCPY3D device_to_host(void* dst, CUdeviceptr src, size_t bytes) {
  CUDA_MEMCPY3D c = flat(bytes);
  c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = src;
  c.dstMemoryType = CU_MEMORYTYPE_HOST;
  c.dstHost = dst;
  return c;
}

CUDA_MEMCPY3D device_to_device(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUmemorytype type) {
  CUDA_MEMCPY3D c = flat(bytes);
  c.srcMemoryType = c.dstMemoryType = type;
  c.srcDevice = src;
  c.dstDevice = dst;
  return c;
}

CUDA_MEMCPY3D to_array(CUDA_MEMCPY3D c, CUarray array, size_t offset) {
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = array;
  c.dstXInBytes = offset;
  return c;
}

CUDA_MEMCPY3D from_array(CUDA_MEMCPY3D c, CUarray array, size_t offset) {
  c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  c.srcArray = array;
  c.srcXInBytes = offset;
  return c;
}

CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D& p) {
  CUDA_MEMCPY3D c = flat(p.WidthInBytes);
  c.srcXInBytes = p.srcXInBytes;
  c.srcY = p.srcY;
  c.srcMemoryType = p.srcMemoryType;
  c.srcHost = p.srcHost;
  c.srcDevice = p.srcDevice;
  c.srcArray = p.srcArray;
  c.srcPitch = p.srcPitch;
  c.dstXInBytes = p.dstXInBytes;
  c.dstY = p.dstY;
  c.dstMemoryType = p.dstMemoryType;
  c.dstHost = p.dstHost;
  c.dstDevice = p.dstDevice;
  c.dstArray = p.dstArray;
  c.dstPitch = p.dstPitch;
  c.Height = p.Height;
  return c;
}

CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER& p) {
  // The two structs differ only in the contexts, which stand where the reserved pointers are.
  static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER));
  CUDA_MEMCPY3D c;
  std::memcpy(&c, &p, sizeof c);
  return c;
}

// Each side is looked at from its own context (make_side in copy.cc).
CUDA_MEMCPY3D between(CUDA_MEMCPY3D c, CUcontext dst, CUcontext src) {
  c.reserved0 = src;
  c.reserved1 = dst;
  return c;
}

CUDA_MEMCPY3D without_contexts(CUDA_MEMCPY3D c) { return between(c, nullptr, nullptr); }

CUresult check_peers(CUcontext dst, CUcontext src) {
  State& s = state();
  Lock lock(s.mutex);
  // NULL stands for the current context.
  bool good = (dst == nullptr || live<Context>(s, dst, Kind::kContext) != nullptr) &&
              (src == nullptr || live<Context>(s, src, Kind::kContext) != nullptr);
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

CUresult copy_async(Context* context, const CUDA_MEMCPY3D& c, CUstream stream) {
  return copy(context, c, stream, Sync::kBatch);
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  SIM_ENTER_CONTEXT(context);
  return copy(context, device_to_device(dst, src, ByteCount, CU_MEMORYTYPE_UNIFIED), nullptr,
              Sync::kSync);
}
SIM_API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount,
                               CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return copy(context, device_to_device(dst, src, ByteCount, CU_MEMORYTYPE_UNIFIED), hStream,
              Sync::kAsync);
}
SIM_API CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  SIM_ENTER_CONTEXT(context);
  return copy(context, host_to_device(dstDevice, srcHost, ByteCount), nullptr, Sync::kSync);
}
SIM_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                      CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return copy(context, host_to_device(dstDevice, srcHost, ByteCount), hStream, Sync::kAsync);
}
SIM_API CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  SIM_ENTER_CONTEXT(context);
  return copy(context, device_to_host(dstHost, srcDevice, ByteCount), nullptr, Sync::kSync);
}
SIM_API CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                      CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return copy(context, device_to_host(dstHost, srcDevice, ByteCount), hStream, Sync::kAsync);
}
SIM_API CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  SIM_ENTER_CONTEXT(context);
  return copy(context, device_to_device(dstDevice, srcDevice, ByteCount, CU_MEMORYTYPE_DEVICE),
              nullptr, Sync::kSync);
}
SIM_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice,
                                      size_t ByteCount, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return copy(context, device_to_device(dstDevice, srcDevice, ByteCount, CU_MEMORYTYPE_DEVICE),
              hStream, Sync::kAsync);
}

SIM_API CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                              CUcontext srcContext, size_t ByteCount) {
  SIM_ENTER_CONTEXT(context);
  if (CUresult r = check_peers(dstContext, srcContext)) return r;
  const CUDA_MEMCPY3D c = device_to_device(dstDevice, srcDevice, ByteCount, CU_MEMORYTYPE_DEVICE);
  return copy(context, between(c, dstContext, srcContext), nullptr, Sync::kSync);
}
SIM_API CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext,
                                   CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount,
                                   CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  if (CUresult r = check_peers(dstContext, srcContext)) return r;
  const CUDA_MEMCPY3D c = device_to_device(dstDevice, srcDevice, ByteCount, CU_MEMORYTYPE_DEVICE);
  return copy(context, between(c, dstContext, srcContext), hStream, Sync::kAsync);
}

SIM_API CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                                 size_t ByteCount) {
  SIM_ENTER_CONTEXT(context);
  CUDA_MEMCPY3D c = to_array(flat(ByteCount), dstArray, dstOffset);
  c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = srcDevice;
  return copy(context, c, nullptr, Sync::kSync);
}
SIM_API CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                                 size_t ByteCount) {
  SIM_ENTER_CONTEXT(context);
  CUDA_MEMCPY3D c = from_array(flat(ByteCount), srcArray, srcOffset);
  c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.dstDevice = dstDevice;
  return copy(context, c, nullptr, Sync::kSync);
}
static CUresult host_to_array(Context* context, CUarray array, size_t offset, const void* host,
                              size_t bytes, CUstream stream, Sync sync) {
  CUDA_MEMCPY3D c = to_array(flat(bytes), array, offset);
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = host;
  return copy(context, c, stream, sync);
}
static CUresult array_to_host(Context* context, void* host, CUarray array, size_t offset,
                              size_t bytes, CUstream stream, Sync sync) {
  CUDA_MEMCPY3D c = from_array(flat(bytes), array, offset);
  c.dstMemoryType = CU_MEMORYTYPE_HOST;
  c.dstHost = host;
  return copy(context, c, stream, sync);
}
SIM_API CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                                 size_t ByteCount) {
  SIM_ENTER_CONTEXT(context);
  return host_to_array(context, dstArray, dstOffset, srcHost, ByteCount, nullptr, Sync::kSync);
}
SIM_API CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                                      size_t ByteCount, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return host_to_array(context, dstArray, dstOffset, srcHost, ByteCount, hStream, Sync::kAsync);
}
SIM_API CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset,
                                 size_t ByteCount) {
  SIM_ENTER_CONTEXT(context);
  return array_to_host(context, dstHost, srcArray, srcOffset, ByteCount, nullptr, Sync::kSync);
}
SIM_API CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset,
                                      size_t ByteCount, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return array_to_host(context, dstHost, srcArray, srcOffset, ByteCount, hStream, Sync::kAsync);
}
SIM_API CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray,
                                 size_t srcOffset, size_t ByteCount) {
  SIM_ENTER_CONTEXT(context);
  return copy(context,
              to_array(from_array(flat(ByteCount), srcArray, srcOffset), dstArray, dstOffset),
              nullptr, Sync::kSync);
}

SIM_API CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  SIM_ENTER_CONTEXT(context);
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy(context, from_2d(*pCopy), nullptr, Sync::kSync);
}
SIM_API CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  SIM_ENTER_CONTEXT(context);
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy(context, from_2d(*pCopy), nullptr, Sync::kSync);
}
SIM_API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy(context, from_2d(*pCopy), hStream, Sync::kAsync);
}
SIM_API CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  SIM_ENTER_CONTEXT(context);
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy(context, without_contexts(*pCopy), nullptr, Sync::kSync);
}
SIM_API CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy(context, without_contexts(*pCopy), hStream, Sync::kAsync);
}
SIM_API CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  SIM_ENTER_CONTEXT(context);
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool peers = pCopy->srcContext != pCopy->dstContext;
  return copy(context, from_peer(*pCopy), nullptr, peers ? Sync::kPeers : Sync::kSync);
}
SIM_API CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy(context, from_peer(*pCopy), hStream, Sync::kAsync);
}

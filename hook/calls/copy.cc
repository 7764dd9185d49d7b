// One-dimensional copies and all memsets: the entry points. The paths are in copy_paths.cc.
#include "hook/memory/copy.h"
#include "base/log.h"
#include "hook/calls/contexts.h"
#include "hook/memory/memory_map.h"
#include "hook/objects/capture.h"
#include "hook/objects/peers.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }

constexpr CopySides kUnified{Says::kNothing, Says::kNothing};
constexpr CopySides kToDevice{Says::kDevice, Says::kHost};
constexpr CopySides kToHost{Says::kHost, Says::kDevice};
constexpr CopySides kOnDevice{Says::kDevice, Says::kDevice};

CUresult copy_now(uint64_t dst, uint64_t src, uint64_t bytes, CopySides says) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(nullptr, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = forbid_capture(stream); r != CUDA_SUCCESS) return r;
  return copy_bytes(dst, src, bytes, says, stream, CopyForm::kNow);
}

CUresult copy_async(uint64_t dst, uint64_t src, uint64_t bytes, CopySides says, CUstream hStream) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = admit_operation(stream); r != CUDA_SUCCESS) return r;
  return copy_bytes(dst, src, bytes, says, stream, CopyForm::kAsync);
}

// Memory of another GPU that the program has not asked to reach.
bool out_of_reach(CUdeviceptr address, const Stream* stream) {
  if (process().device_count < 2) return false;
  Allocation a;
  return memory_map().find(address, &a) && a.kind == MemoryKind::kDevice && a.flags != kFromPool &&
         !reaches(stream->context, a.context);
}

CUresult fill(CUdeviceptr dst, uint64_t pitch, uint32_t value, uint32_t element, uint64_t width,
              uint64_t height, Stream* stream, bool synchronous) {
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  uint64_t row = 0, rows = 0, bytes = 0;
  // The size in bytes wraps, of one row and natively.
  bool fits = !__builtin_mul_overflow(width, element, &row) || height == 1;
  if (height == 1) width = row / element;
  if (width == 0) return CUDA_SUCCESS;
  if (dst == 0 || dst % element != 0 ||
      (height > 1 && (pitch % element != 0 || pitch < row || !fits)))
    return CUDA_ERROR_INVALID_VALUE;
  if (height > 1 && __builtin_mul_overflow(pitch, height - 1, &rows)) fits = false;
  if (__builtin_add_overflow(rows, row, &bytes)) fits = false;
  const Side side = side_of(dst, Says::kDevice);
  if (side == Side::kPageable || out_of_reach(dst, stream)) return CUDA_ERROR_INVALID_VALUE;
  const bool sure = fits && surely_valid(dst, bytes, stream);
  if (!fits || (!sure && surely_beyond(dst, bytes))) return CUDA_ERROR_INVALID_VALUE;
  CUresult result;
  {
    Request<wire::tubeMemset> r(stream);
    r->stream = stream->id;
    r->dst = dst;
    r->pitch = pitch;
    r->value = value;
    r->element_bytes = element;
    r->width = width;
    r->height = height;
    result = sure ? r.post() : r.call();
  }
  if (result != CUDA_SUCCESS) return result;
  return synchronous && (side == Side::kPinned || memory_map().sync_memops(dst))
             ? settle_stream(stream)
             : CUDA_SUCCESS;
}

CUresult fill_now(CUdeviceptr dst, uint64_t pitch, uint32_t value, uint32_t element, uint64_t width,
                  uint64_t height) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(nullptr, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = forbid_capture(stream); r != CUDA_SUCCESS) return r;
  return fill(dst, pitch, value, element, width, height, stream, true);
}

CUresult fill_async(CUdeviceptr dst, uint64_t pitch, uint32_t value, uint32_t element,
                    uint64_t width, uint64_t height, CUstream h) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(h, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = admit_operation(stream); r != CUDA_SUCCESS) return r;
  return fill(dst, pitch, value, element, width, height, stream, false);
}

// Device pointers name their device by themselves: the contexts say nothing new. None is the
// current one.
bool peer_context(CUcontext handle) { return handle == nullptr || find_context(handle) != nullptr; }

}  // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy_now(dst, src, ByteCount, kUnified);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return copy_now(dstDevice, address(srcHost), ByteCount, kToDevice);
}
CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_now(address(dstHost), srcDevice, ByteCount, kToHost);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_now(dstDevice, srcDevice, ByteCount, kOnDevice);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return copy_async(dst, src, ByteCount, kUnified, hStream);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return copy_async(dstDevice, address(srcHost), ByteCount, kToDevice, hStream);
}
CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return copy_async(address(dstHost), srcDevice, ByteCount, kToHost, hStream);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return copy_async(dstDevice, srcDevice, ByteCount, kOnDevice, hStream);
}
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  if (!peer_context(dstContext) || !peer_context(srcContext)) return CUDA_ERROR_INVALID_CONTEXT;
  return in_peer_order(dstContext, srcContext,
                       [&] { return copy_now(dstDevice, srcDevice, ByteCount, kOnDevice); });
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  if (!peer_context(dstContext) || !peer_context(srcContext)) return CUDA_ERROR_INVALID_CONTEXT;
  return copy_async(dstDevice, srcDevice, ByteCount, kOnDevice, hStream);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char uc, size_t N) {
  return fill_now(dst, 0, uc, 1, N, 1);
}
CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short us, size_t N) {
  return fill_now(dst, 0, us, 2, N, 1);
}
CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int ui, size_t N) {
  return fill_now(dst, 0, ui, 4, N, 1);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char uc, size_t Width,
                         size_t Height) {
  return fill_now(dst, pitch, uc, 1, Width, Height);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short us, size_t Width,
                          size_t Height) {
  return fill_now(dst, pitch, us, 2, Width, Height);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned int ui, size_t Width,
                          size_t Height) {
  return fill_now(dst, pitch, ui, 4, Width, Height);
}
CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char uc, size_t N, CUstream h) {
  return fill_async(dst, 0, uc, 1, N, 1, h);
}
CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short us, size_t N, CUstream h) {
  return fill_async(dst, 0, us, 2, N, 1, h);
}
CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int ui, size_t N, CUstream h) {
  return fill_async(dst, 0, ui, 4, N, 1, h);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream h) {
  return fill_async(dst, pitch, uc, 1, Width, Height, h);
}
CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short us, size_t Width,
                            size_t Height, CUstream h) {
  return fill_async(dst, pitch, us, 2, Width, Height, h);
}
CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream h) {
  return fill_async(dst, pitch, ui, 4, Width, Height, h);
}

}  // namespace tube::hook

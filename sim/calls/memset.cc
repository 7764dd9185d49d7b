// cuMemset*: twelve calls, one memset description. Synchronous forms are asynchronous to the host
// on device memory and wait on host memory, as on the real driver.
#include "sim/graphs/capture.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

CUresult fill(Context* context, CUdeviceptr dst, size_t pitch, unsigned value, unsigned element,
              size_t width, size_t height, CUstream handle, bool sync) {
  State& s = state();
  Lock lock(s.mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  if (CUresult r = check_capture_valid(stream)) return r;
  if (pitch % element != 0) return CUDA_ERROR_INVALID_VALUE;
  MemsetWork work;
  work.params = {dst, pitch, value, element, width, height};
  auto range = s.map.find(dst);
  const bool later = range && range->kind == RangeKind::kMapped &&
                     stream->capture != nullptr;  // looked at when it is instantiated
  if (CUresult r = later ? CUDA_SUCCESS : check_memset(stream->context, work.params)) return r;
  if (range && range->kind == RangeKind::kDevice && !reaches(*stream->context, range->context))
    return CUDA_ERROR_INVALID_VALUE;
  FencePtr fence;
  if (CUresult r = issue(lock, stream, work, &fence)) return r;
  bool host =
      range && (range->is_host() || range->kind == RangeKind::kManaged || range->sync_memops);
  if (!sync || !host) return CUDA_SUCCESS;
  wait(lock, fence);
  return stream->context->error.load();
}

// The bytes of a row wrap, and that many are set (H200, 13.0).
size_t wrapped(size_t count, size_t element) { return count * element / element; }

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

#define SIM_MEMSET(sync_name, async_name, type, element)                                        \
  SIM_API CUresult sync_name(CUdeviceptr dstDevice, type value, size_t N) {                     \
    SIM_ENTER_CONTEXT(context);                                                                 \
    return fill(context, dstDevice, 0, value, element, wrapped(N, element), 1, nullptr, true);  \
  }                                                                                             \
  SIM_API CUresult async_name(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream) {  \
    SIM_ENTER_STREAM(context, hStream);                                                         \
    return fill(context, dstDevice, 0, value, element, wrapped(N, element), 1, hStream, false); \
  }
SIM_MEMSET(cuMemsetD8_v2, cuMemsetD8Async, unsigned char, 1)
SIM_MEMSET(cuMemsetD16_v2, cuMemsetD16Async, unsigned short, 2)
SIM_MEMSET(cuMemsetD32_v2, cuMemsetD32Async, unsigned int, 4)

#define SIM_MEMSET_2D(sync_name, async_name, type, element)                                     \
  SIM_API CUresult sync_name(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,  \
                             size_t Height) {                                                   \
    SIM_ENTER_CONTEXT(context);                                                                 \
    return fill(context, dstDevice, dstPitch, value, element, Width, Height, nullptr, true);    \
  }                                                                                             \
  SIM_API CUresult async_name(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, \
                              size_t Height, CUstream hStream) {                                \
    SIM_ENTER_STREAM(context, hStream);                                                         \
    return fill(context, dstDevice, dstPitch, value, element, Width, Height, hStream, false);   \
  }
SIM_MEMSET_2D(cuMemsetD2D8_v2, cuMemsetD2D8Async, unsigned char, 1)
SIM_MEMSET_2D(cuMemsetD2D16_v2, cuMemsetD2D16Async, unsigned short, 2)
SIM_MEMSET_2D(cuMemsetD2D32_v2, cuMemsetD2D32Async, unsigned int, 4)

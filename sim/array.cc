// cuArray*: creation and description. Textures and surfaces that would read arrays in kernels are not simulated.
#include "sim/array.h"

#include "sim/heap.h"

namespace tube::sim {

uint64_t array_element_bytes(CUarray_format format, unsigned channels) {
  if (channels != 1 && channels != 2 && channels != 4) return 0;
  switch (static_cast<int>(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4 * channels;
    default: return 0;
  }
}

namespace {

CUresult create(Context* context, CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  uint64_t element = array_element_bytes(d.Format, d.NumChannels);
  if (out == nullptr || element == 0 || d.Width == 0) return CUDA_ERROR_INVALID_VALUE;
  if (d.Width > 131072 || d.Height > 65536 || d.Depth > 16384) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  if (CUresult r = check_capture_unsafe(s)) return r;
  auto array = std::make_unique<Array>();
  array->context = context;
  array->desc = d;
  array->element_bytes = element;
  array->row_bytes = d.Width * element;
  array->rows = d.Height == 0 ? 1 : d.Height;
  array->slices = d.Depth == 0 ? 1 : d.Depth;
  Range range;
  range.requested = array->row_bytes * array->rows * array->slices;
  range.kind = RangeKind::kArray;
  range.device = context->device->ordinal;
  range.context = context;
  if (CUresult r = allocate_range(s, range, kAllocAlign, &array->base)) return r;
  s.live.emplace(array.get(), Kind::kArray);
  *out = reinterpret_cast<CUarray>(array.release());
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* p) {
  SIM_ENTER_CONTEXT(context);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(context, pHandle, {p->Width, p->Height, 0, p->Format, p->NumChannels, 0});
}

SIM_API CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  SIM_ENTER_CONTEXT(context);
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(context, pHandle, *pAllocateArray);
}

#define SIM_ARRAY(variable, handle)                             \
  State& s = state();                                           \
  Lock lock(s.mutex);                                           \
  auto* variable = live<Array>(s, handle, Kind::kArray);        \
  if (variable == nullptr) return CUDA_ERROR_INVALID_HANDLE

SIM_API CUresult cuArrayDestroy(CUarray hArray) {
  SIM_ENTER(kContext);
  SIM_ARRAY(array, hArray);
  if (CUresult r = synchronize(lock, array->context)) return r;
  if (auto gone = s.map.remove(array->base)) release_range(s, *gone);
  s.live.erase(array);
  delete array;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* d, CUarray hArray) {
  SIM_ENTER(kContext);
  SIM_ARRAY(array, hArray);
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *d = {array->desc.Width, array->desc.Height, array->desc.Format, array->desc.NumChannels};
  return CUDA_SUCCESS;
}

SIM_API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* d, CUarray hArray) {
  SIM_ENTER(kContext);
  SIM_ARRAY(array, hArray);
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *d = array->desc;
  return CUDA_SUCCESS;
}

// Batches of copies: the whole list is checked before the first copy is issued, each then goes its
// ordinary way.
#include "protocol/managed_ranges.h"
#include "sim/machine/copy.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

constexpr size_t kNoIndex = SIZE_MAX;

bool good_order(CUmemcpySrcAccessOrder order, unsigned flags) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
         (flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) == 0;
}

CUresult check_stream(Context* context, CUstream handle) {
  Lock lock(state().mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  if (stream->capture != nullptr)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // the capture stays good
  return stream == stream->context->legacy_stream ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUDA_MEMCPY3D flat(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  c.srcDevice = src;
  c.dstDevice = dst;
  c.WidthInBytes = bytes;
  c.Height = c.Depth = 1;
  return c;
}

bool pageable(const CUDA_MEMCPY3D& c) {
  return c.srcMemoryType == CU_MEMORYTYPE_UNIFIED && !state().map.find(c.srcDevice);
}

CUresult wait_for(Context* context, CUstream handle) {
  Lock lock(state().mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  Context* owner = stream->context;
  wait(lock, stream->lane->tail);
  return owner->error.load();
}

// Who waits is what an H200 showed (13.0): for a pageable source that the GPU reads in stream
// order, and for any other source that is only good during the call.
CUresult copy_in_order(CUmemcpySrcAccessOrder order, Context* context, const CUDA_MEMCPY3D& c,
                       CUstream stream) {
  const auto dst = state().map.find(c.dstDevice);
  const bool to_device = c.dstMemoryType == CU_MEMORYTYPE_UNIFIED && dst && !dst->is_host() &&
                         dst->kind != RangeKind::kManaged;
  if (order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && pageable(c) && to_device) {
    if (CUresult r = wait_for(context, stream)) return r;
  }
  if (CUresult r = copy_async(context, c, stream)) return r;
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL && !pageable(c) &&
                 c.srcMemoryType == CU_MEMORYTYPE_UNIFIED
             ? wait_for(context, stream)
             : CUDA_SUCCESS;
}

CUresult batch(Context* context, CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
               CUmemcpyAttributes* attributes, size_t* starts, size_t number, size_t* failed,
               CUstream stream) {
  *failed = kNoIndex;
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 || attributes == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (!managed::good_starts(starts, number, count, managed::Repeats::kRefused))
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_stream(context, stream)) return r;
  for (size_t i = 0; i < number; ++i)
    if (!good_order(attributes[i].srcAccessOrder, attributes[i].flags))
      return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    *failed = i;
    if (dsts[i] == 0 || srcs[i] == 0 || sizes[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  size_t group = 0;
  for (size_t i = 0; i < count; ++i) {
    *failed = i;
    if (group + 1 < number && starts[group + 1] == i) ++group;
    if (CUresult r = copy_in_order(attributes[group].srcAccessOrder, context,
                                   flat(dsts[i], srcs[i], sizes[i]), stream))
      return r;
  }
  return CUDA_SUCCESS;
}

bool good_operand(const CUmemcpy3DOperand& side, const CUextent3D& extent) {
  if (side.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) return side.op.array.array != nullptr;
  if (side.type != CU_MEMCPY_OPERAND_TYPE_POINTER || side.op.ptr.ptr == 0) return false;
  return (side.op.ptr.rowLength == 0 || side.op.ptr.rowLength >= extent.width) &&
         (side.op.ptr.layerHeight == 0 || side.op.ptr.layerHeight >= extent.height);
}

// Bytes of an element: an array's, or one between two pointers. 0: the arrays differ or are none.
uint64_t element_of(const CUDA_MEMCPY3D_BATCH_OP& op) {
  uint64_t bytes = 0;
  Lock lock(state().mutex);
  for (const CUmemcpy3DOperand* side : {&op.src, &op.dst}) {
    if (side->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) continue;
    auto* array = live<Array>(state(), side->op.array.array, Kind::kArray);
    if (array == nullptr || (bytes != 0 && bytes != array->element_bytes)) return 0;
    bytes = array->element_bytes;
  }
  return bytes == 0 ? 1 : bytes;
}

CUDA_MEMCPY3D as_copy(const CUDA_MEMCPY3D_BATCH_OP& op, uint64_t element) {
  CUDA_MEMCPY3D c = flat(op.dst.op.ptr.ptr, op.src.op.ptr.ptr, op.extent.width * element);
  c.Height = op.extent.height;
  c.Depth = op.extent.depth;
  if (op.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    c.srcArray = op.src.op.array.array;
    c.srcXInBytes = op.src.op.array.offset.x * element;
    c.srcY = op.src.op.array.offset.y;
    c.srcZ = op.src.op.array.offset.z;
  } else {
    c.srcPitch = op.src.op.ptr.rowLength * element;
    c.srcHeight = op.src.op.ptr.layerHeight;
  }
  if (op.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    c.dstArray = op.dst.op.array.array;
    c.dstXInBytes = op.dst.op.array.offset.x * element;
    c.dstY = op.dst.op.array.offset.y;
    c.dstZ = op.dst.op.array.offset.z;
  } else {
    c.dstPitch = op.dst.op.ptr.rowLength * element;
    c.dstHeight = op.dst.op.ptr.layerHeight;
  }
  return c;
}

CUresult batch_3d(Context* context, size_t count, const CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed,
                  unsigned long long flags, CUstream stream) {
  *failed = kNoIndex;
  if (ops == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_stream(context, stream)) return r;
  for (size_t i = 0; i < count; ++i) {
    const CUDA_MEMCPY3D_BATCH_OP& op = ops[i];
    *failed = i;
    if (op.extent.width == 0 || op.extent.height == 0 || op.extent.depth == 0 ||
        !good_order(op.srcAccessOrder, op.flags) || !good_operand(op.src, op.extent) ||
        !good_operand(op.dst, op.extent))
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    *failed = i;
    uint64_t element = element_of(ops[i]);
    if (element == 0) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult r =
            copy_in_order(ops[i].srcAccessOrder, context, as_copy(ops[i], element), stream))
      return r;
  }
  return CUDA_SUCCESS;
}

CUresult tell(CUresult result, size_t failed, size_t* out) {
  if (out != nullptr) *out = result == CUDA_SUCCESS ? kNoIndex : failed;
  return result;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                    size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                    size_t numAttrs, size_t* failIdx, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  size_t failed = 0;
  CUresult r =
      batch(context, dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &failed, hStream);
  return tell(r, failed, failIdx);
}
SIM_API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                       size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                       size_t numAttrs, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  size_t failed = 0;
  if (hStream == nullptr)
    return CUDA_ERROR_INVALID_VALUE;  // even where it means the thread's own stream
  return batch(context, dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &failed, hStream);
}
SIM_API CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                      size_t* failIdx, unsigned long long flags, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  size_t failed = 0;
  CUresult r = batch_3d(context, numOps, opList, &failed, flags, hStream);
  return tell(r, failed, failIdx);
}
SIM_API CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                         unsigned long long flags, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  size_t failed = 0;
  if (hStream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return batch_3d(context, numOps, opList, &failed, flags, hStream);
}

// Batches of copies: checked as a whole first, then issued one by one on the stream by the ordinary
// paths. CUDA leaves the order within a batch open, so the order of the list is as good as any.
#include "hook/memory/copy.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"
#include "protocol/managed_ranges.h"

namespace tube::hook {
namespace {

constexpr size_t kNoIndex = SIZE_MAX;  // the failure is not one copy's

bool good_order(CUmemcpySrcAccessOrder order, unsigned flags) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
         (flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) == 0;
}

// Batches may not go to the legacy stream and cannot be captured, which leaves a capture as it is.
CUresult batch_stream(CUstream hStream, Stream** stream) {
  CUresult error = CUDA_SUCCESS;
  *stream = find_stream(hStream, &error);
  if (*stream == nullptr) return error;
  if (capturing(*stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return (*stream)->legacy() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// As an H200 does: a pageable source of the GPU that is read in stream order is waited for in front
// of the copy, since its bytes are taken at once here; any other source that is only good during
// the call is waited for behind it.
CUresult wait_before(CUmemcpySrcAccessOrder order, CUdeviceptr dst, CUdeviceptr src,
                     Stream* stream) {
  const bool wait = order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
                    side_of(src, Says::kNothing) == Side::kPageable &&
                    side_of(dst, Says::kNothing) == Side::kDevice;
  return wait ? sync_stream(stream) : CUDA_SUCCESS;
}
CUresult settle(CUmemcpySrcAccessOrder order, CUdeviceptr src, Stream* stream) {
  const bool wait = order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL &&
                    gpu_visible(side_of(src, Says::kNothing));
  return wait ? sync_stream(stream) : CUDA_SUCCESS;
}

CUresult batch(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
               CUmemcpyAttributes* attrs, size_t* starts, size_t number, size_t* failed,
               CUstream hStream) {
  Stream* stream = nullptr;
  *failed = kNoIndex;
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 || attrs == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (!managed::good_starts(starts, number, count, managed::Repeats::kRefused))
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = batch_stream(hStream, &stream); r != CUDA_SUCCESS) return r;
  for (size_t i = 0; i < number; ++i) {
    if (!good_order(attrs[i].srcAccessOrder, attrs[i].flags)) return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    if (dsts[i] != 0 && srcs[i] != 0 && sizes[i] != 0) continue;
    *failed = i;
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t group = 0;
  for (size_t i = 0; i < count; ++i) {
    if (group + 1 < number && starts[group + 1] == i) ++group;
    const CUmemcpySrcAccessOrder order = attrs[group].srcAccessOrder;
    CUresult r = wait_before(order, dsts[i], srcs[i], stream);
    if (r == CUDA_SUCCESS)
      r = copy_bytes(dsts[i], srcs[i], sizes[i], {Says::kNothing, Says::kNothing}, stream,
                     CopyForm::kBatch);
    if (r == CUDA_SUCCESS) r = settle(order, srcs[i], stream);
    if (r == CUDA_SUCCESS) continue;
    *failed = i;
    return r;
  }
  return CUDA_SUCCESS;
}

bool good_operand(const CUmemcpy3DOperand& side, const CUextent3D& extent) {
  if (side.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) return side.op.array.array != nullptr;
  if (side.type != CU_MEMCPY_OPERAND_TYPE_POINTER || side.op.ptr.ptr == 0) return false;
  const auto& p = side.op.ptr;
  return (p.rowLength == 0 || p.rowLength >= extent.width) &&
         (p.layerHeight == 0 || p.layerHeight >= extent.height);
}

// Lengths are in elements: an array's, or bytes between two pointers.
CUresult element_bytes(const CUDA_MEMCPY3D_BATCH_OP& op, uint64_t* bytes) {
  *bytes = 1;
  for (const CUmemcpy3DOperand* side : {&op.src, &op.dst}) {
    if (side->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) continue;
    CUDA_ARRAY3D_DESCRIPTOR desc{};
    if (const CUresult r = hook::cuArray3DGetDescriptor_v2(&desc, side->op.array.array);
        r != CUDA_SUCCESS)
      return r;
    uint64_t size = 0;
    switch (desc.Format) {
      case CU_AD_FORMAT_UNSIGNED_INT8:
      case CU_AD_FORMAT_SIGNED_INT8: size = 1; break;
      case CU_AD_FORMAT_UNSIGNED_INT16:
      case CU_AD_FORMAT_SIGNED_INT16:
      case CU_AD_FORMAT_HALF: size = 2; break;
      case CU_AD_FORMAT_UNSIGNED_INT32:
      case CU_AD_FORMAT_SIGNED_INT32:
      case CU_AD_FORMAT_FLOAT: size = 4; break;
      default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    size *= desc.NumChannels;
    if (*bytes != 1 && *bytes != size) return CUDA_ERROR_INVALID_VALUE;
    *bytes = size;
  }
  return CUDA_SUCCESS;
}

CUresult as_copy(const CUDA_MEMCPY3D_BATCH_OP& op, CUDA_MEMCPY3D* copy) {
  uint64_t element = 1;
  if (const CUresult r = element_bytes(op, &element); r != CUDA_SUCCESS) return r;
  *copy = {};
  copy->WidthInBytes = op.extent.width * element;
  copy->Height = op.extent.height;
  copy->Depth = op.extent.depth;
  if (op.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy->srcArray = op.src.op.array.array;
    copy->srcXInBytes = op.src.op.array.offset.x * element;
    copy->srcY = op.src.op.array.offset.y;
    copy->srcZ = op.src.op.array.offset.z;
  } else {
    copy->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy->srcDevice = op.src.op.ptr.ptr;
    copy->srcPitch =
        (op.src.op.ptr.rowLength != 0 ? op.src.op.ptr.rowLength : op.extent.width) * element;
    copy->srcHeight = op.src.op.ptr.layerHeight != 0 ? op.src.op.ptr.layerHeight : op.extent.height;
  }
  if (op.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy->dstArray = op.dst.op.array.array;
    copy->dstXInBytes = op.dst.op.array.offset.x * element;
    copy->dstY = op.dst.op.array.offset.y;
    copy->dstZ = op.dst.op.array.offset.z;
  } else {
    copy->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy->dstDevice = op.dst.op.ptr.ptr;
    copy->dstPitch =
        (op.dst.op.ptr.rowLength != 0 ? op.dst.op.ptr.rowLength : op.extent.width) * element;
    copy->dstHeight = op.dst.op.ptr.layerHeight != 0 ? op.dst.op.ptr.layerHeight : op.extent.height;
  }
  return CUDA_SUCCESS;
}

CUresult batch_3d(size_t count, const CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed,
                  unsigned long long flags, CUstream hStream) {
  Stream* stream = nullptr;
  *failed = kNoIndex;
  if (ops == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = batch_stream(hStream, &stream); r != CUDA_SUCCESS) return r;
  for (size_t i = 0; i < count; ++i) {
    const CUDA_MEMCPY3D_BATCH_OP& op = ops[i];
    const bool good = op.extent.width != 0 && op.extent.height != 0 && op.extent.depth != 0 &&
                      good_order(op.srcAccessOrder, op.flags) && good_operand(op.src, op.extent) &&
                      good_operand(op.dst, op.extent);
    if (good) continue;
    *failed = i;
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    CUDA_MEMCPY3D copy;
    CUresult r = as_copy(ops[i], &copy);
    if (r == CUDA_SUCCESS) r = hook::cuMemcpy3DAsync_v2(&copy, hStream);
    if (r == CUDA_SUCCESS && copy.srcMemoryType == CU_MEMORYTYPE_UNIFIED)
      r = settle(ops[i].srcAccessOrder, copy.srcDevice, stream);
    if (r == CUDA_SUCCESS) continue;
    *failed = i;
    return r;
  }
  return CUDA_SUCCESS;
}

// The first versions say which copy was wrong, unless the stream is the legacy one, which they do
// not take.
CUresult tell(CUresult result, size_t failed, CUstream stream, size_t* out) {
  if (out != nullptr && stream != nullptr) *out = result == CUDA_SUCCESS ? kNoIndex : failed;
  return result;
}

}  // namespace

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  size_t failed = 0;
  return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &failed, hStream);
}
CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                            size_t* failIdx, CUstream hStream) {
  size_t failed = 0;
  const CUresult r = batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &failed, hStream);
  return tell(r, failed, hStream, failIdx);
}
CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) {
  size_t failed = 0;
  return batch_3d(numOps, opList, &failed, flags, hStream);
}
CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
  size_t failed = 0;
  const CUresult r = batch_3d(numOps, opList, &failed, flags, hStream);
  return tell(r, failed, hStream, failIdx);
}

}  // namespace tube::hook

// Tensor maps: what the encoders take and refuse.
#include "tests/conformance/case.h"

namespace {
struct Tiled {
  Gpu gpu;
  DeviceArray<float> memory{64 * 64};
  CUtensorMap map = {};
  cuuint64_t sizes[2] = {64, 64};
  cuuint64_t strides[1] = {64 * sizeof(float)};
  cuuint32_t box[2] = {16, 16};
  cuuint32_t steps[2] = {1, 1};
  CUresult encode(cuuint32_t rank = 2, CUtensorMap* out = nullptr) {
    return cuTensorMapEncodeTiled(out != nullptr ? out : &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, reinterpret_cast<void*>(memory.pointer), sizes, strides,
                                  box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
};
}  // namespace

CASE(tiled) {
  Tiled t;
  SHOW(t.encode());
  SHOW(t.encode(0));
  SHOW(t.encode(6));
  t.box[0] = 0;
  SHOW(t.encode());
  t.box[0] = 257;
  SHOW(t.encode());
  t.box[0] = 16, t.strides[0] = 17;
  SHOW(t.encode());
}

CASE(another_address) {
  Tiled t;
  CU(t.encode());
  SHOW(cuTensorMapReplaceAddress(&t.map, reinterpret_cast<void*>(t.memory.pointer + 1024)));
  SHOW(cuTensorMapReplaceAddress(&t.map, reinterpret_cast<void*>(t.memory.pointer + 4)));
}

CASE(im2col) {
  Gpu gpu;
  DeviceArray<float> memory(8 * 8 * 8);
  CUtensorMap map = {};
  cuuint64_t sizes[3] = {8, 8, 8};
  cuuint64_t strides[2] = {32, 256};
  int lower[1] = {0}, upper[1] = {0};
  cuuint32_t steps[3] = {1, 1, 1};
  SHOW(cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, reinterpret_cast<void*>(memory.pointer), sizes, strides, lower, upper, 8, 8, steps,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  SHOW(cuTensorMapEncodeIm2colWide(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, reinterpret_cast<void*>(memory.pointer), sizes, strides, 0, 0, 8, 8, steps,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

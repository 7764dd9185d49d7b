// cuTensorMapEncode*: the descriptor of a tensor copy. Its real layout is not public; kernels that
// use one (TMA instructions) are not interpreted, so the simulator stores the arguments in a layout
// of its own, after checking them.
#include <cstring>

#include "sim/machine/state.h"

namespace tube::sim {
namespace {

struct Encoded {
  uint32_t magic;
  uint16_t data_type;
  uint8_t rank, interleave;
  uint64_t address;
  uint64_t strides[4];
  uint32_t dims[5];
  uint16_t box[5];
  uint8_t element_strides[5];
  uint8_t swizzle, promotion, fill;
};
static_assert(sizeof(Encoded) <= sizeof(CUtensorMap));
constexpr uint32_t kMagic = 0x4d544254;

CUresult check(const void* map, unsigned rank, const void* address, const cuuint64_t* dims,
               const cuuint64_t* strides) {
  if (map == nullptr || address == nullptr || dims == nullptr || rank == 0 || rank > 5)
    return CUDA_ERROR_INVALID_VALUE;
  if (rank > 1 && strides == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || reinterpret_cast<uintptr_t>(address) % 16 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < rank; ++i)
    if (dims[i] == 0 || dims[i] > (1ull << 32)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i + 1 < rank; ++i)
    if (strides[i] % 16 != 0 || strides[i] >= (1ull << 40)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

struct Modes {
  CUtensorMapDataType type;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

// What all encodings have: the tensor's shape and how its elements are read. The rest of `e` is the
// caller's.
CUresult encode(unsigned rank, const void* address, const cuuint64_t* dims,
                const cuuint64_t* strides, const cuuint32_t* steps, const Modes& modes,
                Encoded* e) {
  if (steps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  e->magic = kMagic;
  e->data_type = static_cast<uint16_t>(modes.type);
  e->rank = static_cast<uint8_t>(rank);
  e->interleave = static_cast<uint8_t>(modes.interleave);
  e->address = reinterpret_cast<uint64_t>(address);
  for (unsigned i = 0; i < rank; ++i) {
    if (steps[i] == 0 || steps[i] > 8) return CUDA_ERROR_INVALID_VALUE;
    e->dims[i] = static_cast<uint32_t>(dims[i] - 1);
    e->element_strides[i] = static_cast<uint8_t>(steps[i]);
    if (i + 1 < rank) e->strides[i] = strides[i];
  }
  e->swizzle = static_cast<uint8_t>(modes.swizzle);
  e->promotion = static_cast<uint8_t>(modes.promotion);
  e->fill = static_cast<uint8_t>(modes.fill);
  return CUDA_SUCCESS;
}

void store(const Encoded& e, CUtensorMap* map) {
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &e, sizeof e);
}

// Columns of an image: channels and pixels of one load, inside a box whose corners are offsets.
CUresult encode_columns(CUtensorMap* map, unsigned rank, const void* address,
                        const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* steps,
                        unsigned channels, unsigned pixels, const Modes& modes) {
  if (CUresult r = check(map, rank, address, dims, strides)) return r;
  if (rank < 3 || channels == 0 || channels > 256 || pixels == 0 || pixels > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  Encoded e{};
  if (CUresult r = encode(rank, address, dims, strides, steps, modes, &e)) return r;
  e.box[0] = static_cast<uint16_t>(channels);
  e.box[1] = static_cast<uint16_t>(pixels);
  store(e, map);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuTensorMapEncodeTiled(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    const cuuint32_t* boxDim, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  SIM_ENTER(kInit);
  if (CUresult r = check(tensorMap, tensorRank, globalAddress, globalDim, globalStrides)) return r;
  Encoded e{};
  if (CUresult r = encode(tensorRank, globalAddress, globalDim, globalStrides, elementStrides,
                          {tensorDataType, interleave, swizzle, l2Promotion, oobFill}, &e))
    return r;
  if (boxDim == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < tensorRank; ++i) {
    if (boxDim[i] == 0 || boxDim[i] > 256) return CUDA_ERROR_INVALID_VALUE;
    e.box[i] = static_cast<uint16_t>(boxDim[i]);
  }
  store(e, tensorMap);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuTensorMapEncodeIm2col(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    const int* pixelBoxLowerCorner, const int* pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  SIM_ENTER(kInit);
  if (pixelBoxLowerCorner == nullptr || pixelBoxUpperCorner == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  return encode_columns(tensorMap, tensorRank, globalAddress, globalDim, globalStrides,
                        elementStrides, channelsPerPixel, pixelsPerColumn,
                        {tensorDataType, interleave, swizzle, l2Promotion, oobFill});
}

SIM_API CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides, int, int,
    cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides,
    CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill) {
  SIM_ENTER(kInit);
  return encode_columns(tensorMap, tensorRank, globalAddress, globalDim, globalStrides,
                        elementStrides, channelsPerPixel, pixelsPerColumn,
                        {tensorDataType, interleave, swizzle, l2Promotion, oobFill});
}

SIM_API CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  SIM_ENTER(kInit);
  if (tensorMap == nullptr || reinterpret_cast<uintptr_t>(globalAddress) % 16 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Encoded e;
  std::memcpy(&e, tensorMap, sizeof e);
  if (e.magic != kMagic) return CUDA_ERROR_INVALID_VALUE;
  e.address = reinterpret_cast<uint64_t>(globalAddress);
  std::memcpy(tensorMap, &e, sizeof e);
  return CUDA_SUCCESS;
}

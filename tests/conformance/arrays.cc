// CUDA arrays and mipmapped arrays: making, describing, copying into and out of them, ending them.
#include "tests/conformance/case.h"

namespace {

CUDA_ARRAY_DESCRIPTOR flat(size_t width, size_t height, CUarray_format format = CU_AD_FORMAT_FLOAT, unsigned channels = 1) {
  return {width, height, format, channels};
}

CUDA_ARRAY3D_DESCRIPTOR deep(size_t width, size_t height, size_t depth, unsigned flags = 0, CUarray_format format = CU_AD_FORMAT_FLOAT,
                             unsigned channels = 1) {
  return {width, height, depth, format, channels, flags};
}

void show(const CUDA_ARRAY_DESCRIPTOR& d) {
  printf("%zu x %zu, format %#x, %u channels\n", d.Width, d.Height, static_cast<unsigned>(d.Format), d.NumChannels);
}
void show(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  printf("%zu x %zu x %zu, format %#x, %u channels, flags %#x\n", d.Width, d.Height, d.Depth, static_cast<unsigned>(d.Format), d.NumChannels,
         d.Flags);
}

struct Array {
  CUarray handle = nullptr;
  explicit Array(const CUDA_ARRAY_DESCRIPTOR& d) { CU(cuArrayCreate(&handle, &d)); }
  explicit Array(const CUDA_ARRAY3D_DESCRIPTOR& d) { CU(cuArray3DCreate(&handle, &d)); }
  ~Array() { CU(cuArrayDestroy(handle)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
};

struct Mipmap {
  CUmipmappedArray handle = nullptr;
  Mipmap(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned levels) { CU(cuMipmappedArrayCreate(&handle, &d, levels)); }
  ~Mipmap() { CU(cuMipmappedArrayDestroy(handle)); }
  Mipmap(const Mipmap&) = delete;
  Mipmap& operator=(const Mipmap&) = delete;
  CUarray level(unsigned i) const {
    CUarray a = nullptr;
    CU(cuMipmappedArrayGetLevel(&a, handle, i));
    return a;
  }
};

std::vector<uint32_t> numbers(size_t count, uint32_t first = 0) {
  std::vector<uint32_t> v(count);
  for (size_t i = 0; i < count; ++i) v[i] = first + static_cast<uint32_t>(i);
  return v;
}

template <typename T>
void print(const char* name, const std::vector<T>& v) {
  printf("%s:", name);
  for (T x : v) printf(" %u", static_cast<unsigned>(x));
  printf("\n");
}

void create_and_show(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  CUarray a = nullptr;
  CUresult r = cuArray3DCreate(&a, &d);
  printf("%zu x %zu x %zu flags %#x -> %s\n", d.Width, d.Height, d.Depth, d.Flags, code_name(r));
  if (r == CUDA_SUCCESS) CU(cuArrayDestroy(a));
}

// A 2D copy between host memory and an array.
CUDA_MEMCPY2D to_array(CUarray a, const void* host, size_t pitch, size_t width_bytes, size_t height) {
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = host;
  c.srcPitch = pitch;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = a;
  c.WidthInBytes = width_bytes;
  c.Height = height;
  return c;
}
CUDA_MEMCPY2D from_array(void* host, CUarray a, size_t pitch, size_t width_bytes, size_t height) {
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  c.srcArray = a;
  c.dstMemoryType = CU_MEMORYTYPE_HOST;
  c.dstHost = host;
  c.dstPitch = pitch;
  c.WidthInBytes = width_bytes;
  c.Height = height;
  return c;
}

CUDA_MEMCPY3D to_array_3d(CUarray a, const void* host, size_t row_bytes, size_t height, size_t depth) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = host;
  c.srcPitch = row_bytes;
  c.srcHeight = height;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = a;
  c.WidthInBytes = row_bytes;
  c.Height = height;
  c.Depth = depth;
  return c;
}
CUDA_MEMCPY3D from_array_3d(void* host, CUarray a, size_t row_bytes, size_t height, size_t depth) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  c.srcArray = a;
  c.dstMemoryType = CU_MEMORYTYPE_HOST;
  c.dstHost = host;
  c.dstPitch = row_bytes;
  c.dstHeight = height;
  c.WidthInBytes = row_bytes;
  c.Height = height;
  c.Depth = depth;
  return c;
}

}  // namespace

// ---- making and describing ----------------------------------------------------------------------------------------------

CASE(create_1d) {
  Gpu gpu;
  Array a(flat(100, 0));
  CUDA_ARRAY_DESCRIPTOR d{};
  SHOW(cuArrayGetDescriptor(&d, a.handle));
  show(d);
}

CASE(create_2d) {
  Gpu gpu;
  Array a(flat(17, 9, CU_AD_FORMAT_UNSIGNED_INT8, 4));
  CUDA_ARRAY_DESCRIPTOR d{};
  CU(cuArrayGetDescriptor(&d, a.handle));
  show(d);
}

CASE(create_3d) {
  Gpu gpu;
  Array a(deep(8, 6, 4));
  CUDA_ARRAY3D_DESCRIPTOR d{};
  SHOW(cuArray3DGetDescriptor(&d, a.handle));
  show(d);
}

CASE(describe_2d_as_3d) {
  Gpu gpu;
  Array a(flat(12, 5, CU_AD_FORMAT_HALF, 2));
  CUDA_ARRAY3D_DESCRIPTOR d{};
  CU(cuArray3DGetDescriptor(&d, a.handle));
  show(d);
}

CASE(describe_3d_as_2d) {
  Gpu gpu;
  Array a(deep(8, 6, 4));
  CUDA_ARRAY_DESCRIPTOR d{};
  SHOW(cuArrayGetDescriptor(&d, a.handle));
  show(d);
}

CASE(formats_and_channels) {
  Gpu gpu;
  for (CUarray_format f : {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT8,
                           CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_HALF, CU_AD_FORMAT_FLOAT}) {
    for (unsigned channels : {0u, 1u, 2u, 3u, 4u, 5u}) {
      CUarray a = nullptr;
      CUDA_ARRAY_DESCRIPTOR d = flat(16, 4, f, channels);
      CUresult r = cuArrayCreate(&a, &d);
      printf("format %#x, %u channels -> %s\n", static_cast<unsigned>(f), channels, code_name(r));
      if (r == CUDA_SUCCESS) CU(cuArrayDestroy(a));
    }
  }
}

CASE(normalized_formats) {
  Gpu gpu;
  for (auto [f, channels] : {std::pair{CU_AD_FORMAT_UNORM_INT8X1, 1u}, {CU_AD_FORMAT_UNORM_INT8X2, 2u}, {CU_AD_FORMAT_UNORM_INT8X4, 4u},
                             {CU_AD_FORMAT_UNORM_INT16X1, 1u}, {CU_AD_FORMAT_SNORM_INT8X4, 4u}, {CU_AD_FORMAT_SNORM_INT16X2, 2u},
                             {CU_AD_FORMAT_UNORM_INT8X4, 1u}}) {
    CUarray a = nullptr;
    CUDA_ARRAY_DESCRIPTOR d = flat(16, 4, f, channels);
    CUresult r = cuArrayCreate(&a, &d);
    printf("format %#x, %u channels -> %s\n", static_cast<unsigned>(f), channels, code_name(r));
    if (r == CUDA_SUCCESS) CU(cuArrayDestroy(a));
  }
}

CASE(unknown_format) {
  Gpu gpu;
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(16, 4, static_cast<CUarray_format>(0x77));
  SHOW(cuArrayCreate(&a, &d));
}

CASE(create_zero_width) {
  Gpu gpu;
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(0, 4);
  SHOW(cuArrayCreate(&a, &d));
}

CASE(create_null_arguments) {
  Gpu gpu;
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(4, 4);
  CUDA_ARRAY3D_DESCRIPTOR d3 = deep(4, 4, 4);
  CUmipmappedArray m = nullptr;
  SHOW(cuArrayCreate(nullptr, &d));
  SHOW(cuArrayCreate(&a, nullptr));
  SHOW(cuArray3DCreate(nullptr, &d3));
  SHOW(cuArray3DCreate(&a, nullptr));
  SHOW(cuMipmappedArrayCreate(nullptr, &d3, 1));
  SHOW(cuMipmappedArrayCreate(&m, nullptr, 1));
}

CASE(describe_null_arguments) {
  Gpu gpu;
  Array a(flat(4, 4));
  CUDA_ARRAY_DESCRIPTOR d{};
  CUDA_ARRAY3D_DESCRIPTOR d3{};
  SHOW(cuArrayGetDescriptor(nullptr, a.handle));
  SHOW(cuArray3DGetDescriptor(nullptr, a.handle));
  SHOW(cuArrayGetDescriptor(&d, nullptr));
  SHOW(cuArray3DGetDescriptor(&d3, nullptr));
}

CASE(destroy_null) {
  Gpu gpu;
  SHOW(cuArrayDestroy(nullptr));
  SHOW(cuMipmappedArrayDestroy(nullptr));
}

CASE(without_context) {
  CU(cuInit(0));
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(4, 4);
  CUDA_ARRAY3D_DESCRIPTOR d3 = deep(4, 4, 4);
  CUmipmappedArray m = nullptr;
  SHOW(cuArrayCreate(&a, &d));
  SHOW(cuArray3DCreate(&a, &d3));
  SHOW(cuMipmappedArrayCreate(&m, &d3, 1));
  SHOW(cuArrayDestroy(nullptr));
}

CASE(before_init) {
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(4, 4);
  SHOW(cuArrayCreate(&a, &d));
}

CASE(extents_of_3d) {
  Gpu gpu;
  create_and_show(deep(4, 4, 4));
  create_and_show(deep(4, 0, 4));
  create_and_show(deep(0, 4, 4));
  create_and_show(deep(16384, 1, 1));
  create_and_show(deep(16385, 1, 1));
  create_and_show(deep(1, 16385, 1));
  create_and_show(deep(1, 1, 16385));
}

CASE(extents_of_2d) {
  Gpu gpu;
  create_and_show(deep(131072, 1, 0));
  create_and_show(deep(131073, 1, 0));
  create_and_show(deep(1, 65536, 0));
  create_and_show(deep(1, 65537, 0));
}

CASE(extents_of_1d) {
  Gpu gpu;
  create_and_show(deep(131072, 0, 0));
  create_and_show(deep(131073, 0, 0));
}

CASE(extents_of_layered) {
  Gpu gpu;
  create_and_show(deep(8, 0, 5, CUDA_ARRAY3D_LAYERED));
  create_and_show(deep(8, 8, 5, CUDA_ARRAY3D_LAYERED));
  create_and_show(deep(8, 8, 0, CUDA_ARRAY3D_LAYERED));
  create_and_show(deep(8, 0, 2048, CUDA_ARRAY3D_LAYERED));
  create_and_show(deep(8, 0, 2049, CUDA_ARRAY3D_LAYERED));
  create_and_show(deep(32768, 0, 1, CUDA_ARRAY3D_LAYERED));
  create_and_show(deep(32769, 0, 1, CUDA_ARRAY3D_LAYERED));
}

CASE(extents_of_cubemap) {
  Gpu gpu;
  create_and_show(deep(8, 8, 6, CUDA_ARRAY3D_CUBEMAP));
  create_and_show(deep(8, 8, 5, CUDA_ARRAY3D_CUBEMAP));
  create_and_show(deep(8, 8, 12, CUDA_ARRAY3D_CUBEMAP));
  create_and_show(deep(8, 4, 6, CUDA_ARRAY3D_CUBEMAP));
  create_and_show(deep(8, 8, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED));
  create_and_show(deep(8, 8, 13, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED));
}

CASE(flags_of_surfaces) {
  Gpu gpu;
  create_and_show(deep(8, 0, 0, CUDA_ARRAY3D_SURFACE_LDST));
  create_and_show(deep(8, 8, 0, CUDA_ARRAY3D_SURFACE_LDST));
  create_and_show(deep(8, 8, 8, CUDA_ARRAY3D_SURFACE_LDST));
  create_and_show(deep(32768, 0, 0, CUDA_ARRAY3D_SURFACE_LDST));
  create_and_show(deep(32769, 0, 0, CUDA_ARRAY3D_SURFACE_LDST));
}

CASE(flags_of_gather) {
  Gpu gpu;
  create_and_show(deep(8, 8, 0, CUDA_ARRAY3D_TEXTURE_GATHER));
  create_and_show(deep(8, 8, 8, CUDA_ARRAY3D_TEXTURE_GATHER));
  create_and_show(deep(8, 0, 0, CUDA_ARRAY3D_TEXTURE_GATHER));
  create_and_show(deep(32769, 8, 0, CUDA_ARRAY3D_TEXTURE_GATHER));
}

CASE(flags_unknown) {
  Gpu gpu;
  create_and_show(deep(8, 8, 0, 0x10000));
}

CASE(flags_are_reported) {
  Gpu gpu;
  Array a(deep(8, 8, 6, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_SURFACE_LDST));
  CUDA_ARRAY3D_DESCRIPTOR d{};
  CU(cuArray3DGetDescriptor(&d, a.handle));
  show(d);
}

CASE(destroyed_array) {
  Gpu gpu;
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(4, 4);
  CU(cuArrayCreate(&a, &d));
  SHOW(cuArrayDestroy(a));
  uint32_t value = 0;
  SHOW(cuMemcpyAtoH(&value, nullptr, 0, 4));
}

CASE(capture_forbids_creation) {
  Gpu gpu;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(4, 4);
  SHOW(cuArrayCreate(&a, &d));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(stream, &graph));
  CU(cuStreamDestroy(stream));
}

// ---- sparse, deferred, planes -------------------------------------------------------------------------------------------

CASE(sparse_properties_of_plain_array) {
  Gpu gpu;
  Array a(flat(64, 64));
  CUDA_ARRAY_SPARSE_PROPERTIES p{};
  SHOW(cuArrayGetSparseProperties(&p, a.handle));
  SHOW(cuArrayGetSparseProperties(nullptr, a.handle));
}

CASE(memory_requirements_of_plain_array) {
  Gpu gpu;
  Array a(flat(64, 64));
  CUDA_ARRAY_MEMORY_REQUIREMENTS m{};
  SHOW(cuArrayGetMemoryRequirements(&m, a.handle, gpu.device));
  SHOW(cuArrayGetMemoryRequirements(nullptr, a.handle, gpu.device));
}

CASE(plane_of_plain_array) {
  Gpu gpu;
  Array a(flat(64, 64));
  CUarray plane = nullptr;
  SHOW(cuArrayGetPlane(&plane, a.handle, 0));
  SHOW(cuArrayGetPlane(nullptr, a.handle, 0));
}

CASE(planes_of_nv12) {
  Gpu gpu;
  CUarray a = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR d = deep(64, 32, 0, 0, CU_AD_FORMAT_NV12, 3);
  if (cuArray3DCreate(&a, &d) != CUDA_SUCCESS) SKIP("no planar arrays here");
  for (unsigned i = 0; i < 3; ++i) {
    CUarray plane = nullptr;
    CUresult r = cuArrayGetPlane(&plane, a, i);
    printf("plane %u -> %s\n", i, code_name(r));
    if (r != CUDA_SUCCESS) continue;
    CUDA_ARRAY3D_DESCRIPTOR p{};
    CU(cuArray3DGetDescriptor(&p, plane));
    show(p);
  }
  CU(cuArrayDestroy(a));
}

CASE(map_array_that_is_not_sparse) {
  Gpu gpu;
  Array a(flat(64, 64));
  CUarrayMapInfo info{};
  info.resourceType = CU_RESOURCE_TYPE_ARRAY;
  info.resource.array = a.handle;
  info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
  info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
  info.deviceBitMask = 1;
  SHOW(cuMemMapArrayAsync(&info, 1, nullptr));
  SHOW(cuMemMapArrayAsync(nullptr, 1, nullptr));
  SHOW(cuMemMapArrayAsync_ptsz(&info, 1, nullptr));
}

CASE(sparse_array_round_trip) {
  Gpu gpu;
  int supported = 0;
  CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, gpu.device));
  if (supported == 0) SKIP("no sparse arrays on this device");
  CUarray a = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR d = deep(1024, 1024, 0, CUDA_ARRAY3D_SPARSE);
  SHOW(cuArray3DCreate(&a, &d));
  CUDA_ARRAY_SPARSE_PROPERTIES p{};
  SHOW(cuArrayGetSparseProperties(&p, a));
  printf("tiles of %u x %u x %u\n", p.tileExtent.width, p.tileExtent.height, p.tileExtent.depth);
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = gpu.device;
  prop.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  CUmemGenericAllocationHandle memory = 0;
  SHOW(cuMemCreate(&memory, 2u << 20, &prop, 0));
  CUarrayMapInfo info{};
  info.resourceType = CU_RESOURCE_TYPE_ARRAY;
  info.resource.array = a;
  info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  info.subresource.sparseLevel.extentWidth = p.tileExtent.width;
  info.subresource.sparseLevel.extentHeight = p.tileExtent.height;
  info.subresource.sparseLevel.extentDepth = 1;
  info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
  info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
  info.memHandle.memHandle = memory;
  info.deviceBitMask = 1u << gpu.device;
  SHOW(cuMemMapArrayAsync(&info, 1, nullptr));
  std::vector<uint32_t> in = numbers(64), out(64);
  CUDA_MEMCPY2D up = to_array(a, in.data(), 32, 32, 8), down = from_array(out.data(), a, 32, 32, 8);
  SHOW(cuMemcpy2D(&up));
  SHOW(cuMemcpy2D(&down));
  printf("equal: %d\n", in == out);
  info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
  info.memHandle.memHandle = 0;
  SHOW(cuMemMapArrayAsync(&info, 1, nullptr));
  CU(cuCtxSynchronize());
  SHOW(cuMemRelease(memory));
  SHOW(cuArrayDestroy(a));
}

CASE(deferred_array_requirements) {
  Gpu gpu;
  int supported = 0;
  CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, gpu.device));
  if (supported == 0) SKIP("no deferred mapping on this device");
  Array a(deep(1024, 256, 0, CUDA_ARRAY3D_DEFERRED_MAPPING));
  CUDA_ARRAY_MEMORY_REQUIREMENTS m{};
  SHOW(cuArrayGetMemoryRequirements(&m, a.handle, gpu.device));
  printf("enough: %d\n", m.size >= 1024 * 256 * 4 && m.alignment != 0);
}

// ---- mipmapped ----------------------------------------------------------------------------------------------------------

CASE(mipmap_levels_shrink) {
  Gpu gpu;
  Mipmap m(deep(20, 9, 0), 5);
  for (unsigned i = 0; i < 5; ++i) {
    CUDA_ARRAY3D_DESCRIPTOR d{};
    CU(cuArray3DGetDescriptor(&d, m.level(i)));
    show(d);
  }
}

CASE(mipmap_levels_of_3d) {
  Gpu gpu;
  Mipmap m(deep(8, 4, 16), 5);
  for (unsigned i = 0; i < 5; ++i) {
    CUDA_ARRAY3D_DESCRIPTOR d{};
    CU(cuArray3DGetDescriptor(&d, m.level(i)));
    show(d);
  }
}

CASE(mipmap_levels_of_layers) {
  Gpu gpu;
  Mipmap m(deep(8, 8, 3, CUDA_ARRAY3D_LAYERED), 4);
  for (unsigned i = 0; i < 4; ++i) {
    CUDA_ARRAY3D_DESCRIPTOR d{};
    CU(cuArray3DGetDescriptor(&d, m.level(i)));
    show(d);
  }
}

CASE(mipmap_level_count_is_clamped) {
  Gpu gpu;
  Mipmap m(deep(8, 8, 0), 100);
  CUarray a = nullptr;
  for (unsigned i : {0u, 3u, 4u, 99u}) printf("level %u -> %s\n", i, code_name(cuMipmappedArrayGetLevel(&a, m.handle, i)));
}

CASE(mipmap_zero_levels) {
  Gpu gpu;
  CUmipmappedArray m = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR d = deep(8, 8, 0);
  CUresult r = cuMipmappedArrayCreate(&m, &d, 0);
  printf("0 levels -> %s\n", code_name(r));
  CUarray a = nullptr;
  if (r != CUDA_SUCCESS) return;
  SHOW(cuMipmappedArrayGetLevel(&a, m, 0));
  SHOW(cuMipmappedArrayGetLevel(&a, m, 1));
  CU(cuMipmappedArrayDestroy(m));
}

CASE(mipmap_level_twice) {
  Gpu gpu;
  Mipmap m(deep(8, 8, 0), 2);
  printf("same handle: %d\n", m.level(1) == m.level(1));
}

CASE(mipmap_null_arguments) {
  Gpu gpu;
  Mipmap m(deep(8, 8, 0), 2);
  CUarray a = nullptr;
  SHOW(cuMipmappedArrayGetLevel(nullptr, m.handle, 0));
  SHOW(cuMipmappedArrayGetLevel(&a, nullptr, 0));
}

CASE(mipmap_sparse_and_requirements_of_plain) {
  Gpu gpu;
  Mipmap m(deep(64, 64, 0), 3);
  CUDA_ARRAY_SPARSE_PROPERTIES p{};
  CUDA_ARRAY_MEMORY_REQUIREMENTS q{};
  SHOW(cuMipmappedArrayGetSparseProperties(&p, m.handle));
  SHOW(cuMipmappedArrayGetMemoryRequirements(&q, m.handle, gpu.device));
}

CASE(mipmap_copies_by_level) {
  Gpu gpu;
  Mipmap m(deep(16, 16, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32), 3);
  for (unsigned level = 0; level < 3; ++level) {
    const size_t side = 16u >> level;
    std::vector<uint32_t> in = numbers(side * side, level * 1000);
    CUDA_MEMCPY2D c = to_array(m.level(level), in.data(), side * 4, side * 4, side);
    CU(cuMemcpy2D(&c));
  }
  for (unsigned level = 0; level < 3; ++level) {
    const size_t side = 16u >> level;
    std::vector<uint32_t> out(side * side);
    CUDA_MEMCPY2D c = from_array(out.data(), m.level(level), side * 4, side * 4, side);
    CU(cuMemcpy2D(&c));
    printf("level %u equal: %d\n", level, out == numbers(side * side, level * 1000));
  }
}

// ---- one-dimensional copies ---------------------------------------------------------------------------------------------

CASE(copy_host_to_array_and_back) {
  Gpu gpu;
  Array a(flat(64, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(64), out(64);
  SHOW(cuMemcpyHtoA(a.handle, 0, in.data(), 256));
  SHOW(cuMemcpyAtoH(out.data(), a.handle, 0, 256));
  printf("equal: %d\n", in == out);
}

CASE(copy_with_offsets) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> zero(16), in = numbers(4, 100), out(16);
  CU(cuMemcpyHtoA(a.handle, 0, zero.data(), 64));
  SHOW(cuMemcpyHtoA(a.handle, 20, in.data(), 16));
  CU(cuMemcpyAtoH(out.data(), a.handle, 0, 64));
  print("array", out);
  std::vector<uint32_t> part(2);
  SHOW(cuMemcpyAtoH(part.data(), a.handle, 24, 8));
  print("part", part);
}

CASE(copy_array_to_array) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32)), b(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(16, 1), zero(16), out(16);
  CU(cuMemcpyHtoA(a.handle, 0, in.data(), 64));
  CU(cuMemcpyHtoA(b.handle, 0, zero.data(), 64));
  SHOW(cuMemcpyAtoA(b.handle, 8, a.handle, 4, 40));
  CU(cuMemcpyAtoH(out.data(), b.handle, 0, 64));
  print("array", out);
}

CASE(copy_device_and_array) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  DeviceArray<uint32_t> in(numbers(16, 7)), out(std::vector<uint32_t>(16, 0));
  SHOW(cuMemcpyDtoA(a.handle, 0, in.pointer, 64));
  SHOW(cuMemcpyAtoD(out.pointer, a.handle, 0, 64));
  print("device", out.read());
}

CASE(copy_async_and_array) {
  Gpu gpu;
  Array a(flat(1024, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<uint32_t> in = numbers(1024, 3), out(1024);
  SHOW(cuMemcpyHtoAAsync(a.handle, 0, in.data(), 4096, stream));
  SHOW(cuMemcpyAtoHAsync(out.data(), a.handle, 0, 4096, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", in == out);
  CU(cuStreamDestroy(stream));
}

CASE(copy_async_pinned_and_array) {
  Gpu gpu;
  Array a(flat(1024, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  uint32_t* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 8192, 0));
  for (uint32_t i = 0; i < 1024; ++i) pinned[i] = i * 3;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  SHOW(cuMemcpyHtoAAsync(a.handle, 0, pinned, 4096, stream));
  SHOW(cuMemcpyAtoHAsync(pinned + 1024, a.handle, 0, 4096, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", memcmp(pinned, pinned + 1024, 4096) == 0);
  CU(cuStreamDestroy(stream));
  CU(cuMemFreeHost(pinned));
}

CASE(copy_per_thread_forms) {
  Gpu gpu;
  Array a(flat(8, 0, CU_AD_FORMAT_UNSIGNED_INT32)), b(flat(8, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(8, 50), out(8);
  DeviceArray<uint32_t> device(std::vector<uint32_t>(8, 0));
  SHOW(cuMemcpyHtoA_v2_ptds(a.handle, 0, in.data(), 32));
  SHOW(cuMemcpyAtoA_v2_ptds(b.handle, 0, a.handle, 0, 32));
  SHOW(cuMemcpyAtoD_v2_ptds(device.pointer, b.handle, 0, 32));
  SHOW(cuMemcpyDtoA_v2_ptds(a.handle, 0, device.pointer, 32));
  SHOW(cuMemcpyAtoH_v2_ptds(out.data(), a.handle, 0, 32));
  print("host", out);
  SHOW(cuMemcpyHtoAAsync_v2_ptsz(b.handle, 0, in.data(), 32, nullptr));
  SHOW(cuMemcpyAtoHAsync_v2_ptsz(out.data(), b.handle, 0, 32, nullptr));
  CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  print("host", out);
}

CASE(copy_outside_array) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> data(64);
  SHOW(cuMemcpyHtoA(a.handle, 0, data.data(), 65));
  SHOW(cuMemcpyHtoA(a.handle, 0, data.data(), 68));
  SHOW(cuMemcpyHtoA(a.handle, 64, data.data(), 4));
  SHOW(cuMemcpyAtoH(data.data(), a.handle, 60, 8));
  SHOW(cuMemcpyAtoH(data.data(), a.handle, SIZE_MAX - 3, 4));
}

CASE(copy_unaligned_to_elements) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> data(64);
  SHOW(cuMemcpyHtoA(a.handle, 1, data.data(), 4));
  SHOW(cuMemcpyHtoA(a.handle, 0, data.data(), 3));
  SHOW(cuMemcpyAtoH(data.data(), a.handle, 2, 4));
}

CASE(copy_zero_bytes_and_array) {
  Gpu gpu;
  Array a(flat(16, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  uint32_t value = 0;
  SHOW(cuMemcpyHtoA(a.handle, 0, &value, 0));
  SHOW(cuMemcpyAtoH(&value, a.handle, 0, 0));
}

CASE(copy_null_array) {
  Gpu gpu;
  Array a(flat(16, 0));
  DeviceArray<uint32_t> device(16);
  uint32_t value = 0;
  SHOW(cuMemcpyHtoA(nullptr, 0, &value, 4));
  SHOW(cuMemcpyAtoH(&value, nullptr, 0, 4));
  SHOW(cuMemcpyAtoA(nullptr, 0, a.handle, 0, 4));
  SHOW(cuMemcpyAtoA(a.handle, 0, nullptr, 0, 4));
  SHOW(cuMemcpyDtoA(nullptr, 0, device.pointer, 4));
  SHOW(cuMemcpyAtoD(device.pointer, nullptr, 0, 4));
  SHOW(cuMemcpyHtoAAsync(nullptr, 0, &value, 4, nullptr));
  SHOW(cuMemcpyAtoHAsync(&value, nullptr, 0, 4, nullptr));
}

CASE(copy_null_host) {
  Gpu gpu;
  Array a(flat(16, 0));
  SHOW(cuMemcpyHtoA(a.handle, 0, nullptr, 4));
  SHOW(cuMemcpyAtoH(nullptr, a.handle, 0, 4));
}

CASE(copy_flat_into_2d_array) {
  Gpu gpu;
  Array a(flat(8, 4, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(32), out(32);
  CUDA_MEMCPY2D c = to_array(a.handle, in.data(), 32, 32, 4);
  CU(cuMemcpy2D(&c));
  SHOW(cuMemcpyAtoH(out.data(), a.handle, 0, 32));
  print("first row", std::vector<uint32_t>(out.begin(), out.begin() + 8));
  SHOW(cuMemcpyAtoH(out.data(), a.handle, 0, 64));
  SHOW(cuMemcpyAtoH(out.data(), a.handle, 32, 32));
}

// ---- two and three dimensions --------------------------------------------------------------------------------------------

CASE(copy_2d_host) {
  Gpu gpu;
  Array a(flat(33, 21, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(40 * 21), out(33 * 21);
  CUDA_MEMCPY2D up = to_array(a.handle, in.data(), 160, 132, 21), down = from_array(out.data(), a.handle, 132, 132, 21);
  SHOW(cuMemcpy2D(&up));
  SHOW(cuMemcpy2D(&down));
  print_hash("array", out);
  printf("corner %u\n", out.back());
}

CASE(copy_2d_part) {
  Gpu gpu;
  Array a(flat(8, 8, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> zero(64), in = numbers(64, 100), out(64);
  CUDA_MEMCPY2D clear = to_array(a.handle, zero.data(), 32, 32, 8);
  CU(cuMemcpy2D(&clear));
  CUDA_MEMCPY2D c = to_array(a.handle, in.data(), 32, 12, 2);
  c.srcXInBytes = 4, c.srcY = 1, c.dstXInBytes = 8, c.dstY = 5;
  SHOW(cuMemcpy2D(&c));
  CUDA_MEMCPY2D down = from_array(out.data(), a.handle, 32, 32, 8);
  CU(cuMemcpy2D(&down));
  for (size_t row = 4; row < 8; ++row) print("row", std::vector<uint32_t>(out.begin() + static_cast<long>(row) * 8, out.begin() + static_cast<long>(row) * 8 + 8));
}

CASE(copy_2d_device_and_unaligned) {
  Gpu gpu;
  Array a(flat(16, 4, CU_AD_FORMAT_UNSIGNED_INT8, 4));
  DeviceArray<uint32_t> in(numbers(80)), out(std::vector<uint32_t>(64, 0));
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_DEVICE, c.srcDevice = in.pointer, c.srcPitch = 80;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = a.handle;
  c.WidthInBytes = 64, c.Height = 4;
  SHOW(cuMemcpy2DUnaligned(&c));
  CUDA_MEMCPY2D d{};
  d.srcMemoryType = CU_MEMORYTYPE_ARRAY, d.srcArray = a.handle;
  d.dstMemoryType = CU_MEMORYTYPE_UNIFIED, d.dstDevice = out.pointer, d.dstPitch = 64;
  d.WidthInBytes = 64, d.Height = 4;
  SHOW(cuMemcpy2D(&d));
  print("device", out.read());
}

CASE(copy_2d_outside) {
  Gpu gpu;
  Array a(flat(8, 8));
  std::vector<float> data(256);
  CUDA_MEMCPY2D c = to_array(a.handle, data.data(), 64, 36, 4);
  SHOW(cuMemcpy2D(&c));
  c = to_array(a.handle, data.data(), 64, 32, 9);
  SHOW(cuMemcpy2D(&c));
  c = to_array(a.handle, data.data(), 64, 16, 4);
  c.dstXInBytes = 20;
  SHOW(cuMemcpy2D(&c));
  c.dstXInBytes = 16, c.dstY = 5;
  SHOW(cuMemcpy2D(&c));
  c.dstY = 4;
  SHOW(cuMemcpy2D(&c));
}

CASE(copy_2d_async_null_array) {
  Gpu gpu;
  std::vector<float> data(64);
  CUDA_MEMCPY2D c = to_array(nullptr, data.data(), 32, 32, 2);
  SHOW(cuMemcpy2D(&c));
  SHOW(cuMemcpy2DAsync(&c, nullptr));
}

CASE(copy_2d_array_to_array_overlapping) {
  Gpu gpu;
  Array a(flat(8, 8, CU_AD_FORMAT_UNSIGNED_INT32)), b(flat(12, 10, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(64), zero(120), out(120);
  CUDA_MEMCPY2D up = to_array(a.handle, in.data(), 32, 32, 8), clear = to_array(b.handle, zero.data(), 48, 48, 10);
  CU(cuMemcpy2D(&up));
  CU(cuMemcpy2D(&clear));
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.srcArray = a.handle, c.dstArray = b.handle;
  c.srcXInBytes = 8, c.srcY = 3, c.dstXInBytes = 16, c.dstY = 2;
  c.WidthInBytes = 24, c.Height = 5;
  SHOW(cuMemcpy2D(&c));
  CUDA_MEMCPY2D down = from_array(out.data(), b.handle, 48, 48, 10);
  CU(cuMemcpy2D(&down));
  print_hash("array", out);
  printf("moved %u %u\n", out[2 * 12 + 4], out[6 * 12 + 9]);
}

CASE(copy_3d_host) {
  Gpu gpu;
  Array a(deep(5, 4, 3, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(60), out(60);
  CUDA_MEMCPY3D up = to_array_3d(a.handle, in.data(), 20, 4, 3), down = from_array_3d(out.data(), a.handle, 20, 4, 3);
  SHOW(cuMemcpy3D(&up));
  SHOW(cuMemcpy3D(&down));
  printf("equal: %d\n", in == out);
}

CASE(copy_3d_part) {
  Gpu gpu;
  Array a(deep(4, 4, 4, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> zero(64), in = numbers(64, 500), out(64);
  CUDA_MEMCPY3D clear = to_array_3d(a.handle, zero.data(), 16, 4, 4);
  CU(cuMemcpy3D(&clear));
  CUDA_MEMCPY3D c = to_array_3d(a.handle, in.data(), 16, 4, 4);
  c.dstXInBytes = 4, c.dstY = 2, c.dstZ = 3, c.srcZ = 1;
  c.WidthInBytes = 8, c.Height = 2, c.Depth = 1;
  SHOW(cuMemcpy3D(&c));
  CUDA_MEMCPY3D down = from_array_3d(out.data(), a.handle, 16, 4, 4);
  CU(cuMemcpy3D(&down));
  print("last slice", std::vector<uint32_t>(out.begin() + 48, out.end()));
}

CASE(copy_3d_layers) {
  Gpu gpu;
  Array a(deep(4, 0, 3, CUDA_ARRAY3D_LAYERED, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(12, 1), out(12);
  CUDA_MEMCPY3D up = to_array_3d(a.handle, in.data(), 16, 1, 3), down = from_array_3d(out.data(), a.handle, 16, 1, 3);
  SHOW(cuMemcpy3D(&up));
  SHOW(cuMemcpy3D(&down));
  print("layers", out);
}

CASE(copy_3d_lod_must_be_zero) {
  Gpu gpu;
  Array a(deep(4, 4, 4));
  std::vector<float> data(64);
  CUDA_MEMCPY3D c = to_array_3d(a.handle, data.data(), 16, 4, 4);
  c.dstLOD = 1;
  SHOW(cuMemcpy3D(&c));
}

CASE(copy_3d_async_and_peer) {
  Gpu gpu;
  Array a(deep(16, 8, 4, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(512, 9), out(512);
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CUDA_MEMCPY3D up = to_array_3d(a.handle, in.data(), 64, 8, 4);
  SHOW(cuMemcpy3DAsync(&up, stream));
  CU(cuStreamSynchronize(stream));
  CUDA_MEMCPY3D_PEER down{};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY, down.srcArray = a.handle, down.srcContext = gpu.context;
  down.dstMemoryType = CU_MEMORYTYPE_HOST, down.dstHost = out.data(), down.dstPitch = 64, down.dstHeight = 8, down.dstContext = gpu.context;
  down.WidthInBytes = 64, down.Height = 8, down.Depth = 4;
  SHOW(cuMemcpy3DPeer(&down));
  printf("equal: %d\n", in == out);
  std::fill(out.begin(), out.end(), 0);
  SHOW(cuMemcpy3DPeerAsync(&down, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", in == out);
  CU(cuStreamDestroy(stream));
}

CASE(copy_long_rows) {
  Gpu gpu;
  // Rows of two MiB: longer than anything that goes in one piece.
  Array a(flat(131072, 3, CU_AD_FORMAT_FLOAT, 4));
  std::vector<uint32_t> in = numbers(131072 * 4 * 3), out(in.size());
  const size_t row = 131072 * 16;
  CUDA_MEMCPY2D up = to_array(a.handle, in.data(), row, row, 3), down = from_array(out.data(), a.handle, row, row, 3);
  SHOW(cuMemcpy2D(&up));
  SHOW(cuMemcpy2D(&down));
  printf("equal: %d\n", in == out);
}

CASE(copy_many_megabytes) {
  Gpu gpu;
  Array a(flat(1024, 4096, CU_AD_FORMAT_UNSIGNED_INT32));
  std::vector<uint32_t> in = numbers(1024 * 4096, 11), out(in.size());
  CUDA_MEMCPY2D up = to_array(a.handle, in.data(), 4096, 4096, 4096), down = from_array(out.data(), a.handle, 4096, 4096, 4096);
  CU(cuMemcpy2D(&up));
  CU(cuMemcpy2D(&down));
  printf("equal: %d\n", in == out);
}

CASE(destroy_while_copying) {
  Gpu gpu;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<uint32_t> in = numbers(1024 * 1024);
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(1024, 1024, CU_AD_FORMAT_UNSIGNED_INT32);
  CU(cuArrayCreate(&a, &d));
  CUDA_MEMCPY2D up = to_array(a, in.data(), 4096, 4096, 1024);
  CU(cuMemcpy2DAsync(&up, stream));
  SHOW(cuArrayDestroy(a));
  SHOW(cuStreamSynchronize(stream));
  CU(cuStreamDestroy(stream));
}

CASE(context_reset_ends_arrays) {
  Gpu gpu;
  CUarray a = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = flat(16, 16);
  CU(cuArrayCreate(&a, &d));
  SHOW(cuDevicePrimaryCtxReset(gpu.device));
  CU(cuCtxSetCurrent(gpu.context));
  CUarray b = nullptr;
  SHOW(cuArrayCreate(&b, &d));
  SHOW(cuArrayDestroy(b));
}

// ---- graphs ---------------------------------------------------------------------------------------------------------------

CASE(graph_copies_array) {
  Gpu gpu;
  Array a(flat(16, 4, CU_AD_FORMAT_UNSIGNED_INT32));
  DeviceArray<uint32_t> in(numbers(64, 4)), out(std::vector<uint32_t>(64, 0));
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CUDA_MEMCPY3D up{};
  up.srcMemoryType = CU_MEMORYTYPE_DEVICE, up.srcDevice = in.pointer, up.srcPitch = 64, up.srcHeight = 4;
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY, up.dstArray = a.handle;
  up.WidthInBytes = 64, up.Height = 4, up.Depth = 1;
  CUDA_MEMCPY3D down{};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY, down.srcArray = a.handle;
  down.dstMemoryType = CU_MEMORYTYPE_DEVICE, down.dstDevice = out.pointer, down.dstPitch = 64, down.dstHeight = 4;
  down.WidthInBytes = 64, down.Height = 4, down.Depth = 1;
  CUgraphNode first = nullptr, second = nullptr;
  SHOW(cuGraphAddMemcpyNode(&first, graph, nullptr, 0, &up, gpu.context));
  SHOW(cuGraphAddMemcpyNode(&second, graph, &first, 1, &down, gpu.context));
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  SHOW(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", out.read() == in.read());
  CU(cuStreamDestroy(stream));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

CASE(capture_copies_array) {
  Gpu gpu;
  Array a(flat(16, 4, CU_AD_FORMAT_UNSIGNED_INT32));
  DeviceArray<uint32_t> in(numbers(64, 21)), out(std::vector<uint32_t>(64, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUDA_MEMCPY2D up{};
  up.srcMemoryType = CU_MEMORYTYPE_DEVICE, up.srcDevice = in.pointer, up.srcPitch = 64;
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY, up.dstArray = a.handle;
  up.WidthInBytes = 64, up.Height = 4;
  SHOW(cuMemcpy2DAsync(&up, stream));
  CUDA_MEMCPY2D down{};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY, down.srcArray = a.handle;
  down.dstMemoryType = CU_MEMORYTYPE_DEVICE, down.dstDevice = out.pointer, down.dstPitch = 64;
  down.WidthInBytes = 64, down.Height = 4;
  SHOW(cuMemcpy2DAsync(&down, stream));
  CUgraph graph = nullptr;
  CU(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec = nullptr;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  printf("equal: %d\n", out.read() == in.read());
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuStreamDestroy(stream));
}

CASE(capture_forbids_synchronous_array_copy) {
  Gpu gpu;
  Array a(flat(16, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  uint32_t value = 0;
  SHOW(cuMemcpyAtoH(&value, a.handle, 0, 4));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(stream, &graph));
  CU(cuStreamDestroy(stream));
}

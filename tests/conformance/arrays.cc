// CUDA arrays and mipmapped arrays: making, describing and ending them.
#include "tests/conformance/array_kit.h"

using namespace array_kit;

// ---- making and describing ----

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

// ---- sparse, deferred, planes ----

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
  for (unsigned channels = 1; channels <= 4 && a == nullptr; ++channels) {
    CUDA_ARRAY3D_DESCRIPTOR d = deep(64, 32, 0, 0, CU_AD_FORMAT_NV12, channels);
    if (cuArray3DCreate(&a, &d) == CUDA_SUCCESS) printf("made with %u channels\n", channels);
  }
  if (a == nullptr) SKIP("no planar arrays here");
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

// ---- mipmapped ----

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

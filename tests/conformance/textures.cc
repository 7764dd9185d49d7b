// Texture objects: making, describing and ending them.
#include "tests/conformance/texture_kit.h"

using namespace texture_kit;

// ---- making, describing, ending ----

CASE(create_and_destroy) {
  Gpu gpu;
  Array a(shape(16, 16));
  CUtexObject t = 0;
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  CUDA_TEXTURE_DESC d = point();
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
  printf("a handle: %d\n", t != 0);
  SHOW(cuTexObjectDestroy(t));
}

CASE(destroy_what_is_not_there) {
  Gpu gpu;
  Array a(shape(16, 16));
  Texture t(of_array(a.handle), point());
  SHOW(cuTexObjectDestroy(t.handle));
  SHOW(cuTexObjectDestroy(t.handle));
  SHOW(cuTexObjectDestroy(0));
  SHOW(cuTexObjectDestroy(1));
}

CASE(create_null_arguments) {
  Gpu gpu;
  Array a(shape(16, 16));
  CUtexObject t = 0;
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  CUDA_TEXTURE_DESC d = point();
  SHOW(cuTexObjectCreate(nullptr, &r, &d, nullptr));
  SHOW(cuTexObjectCreate(&t, nullptr, &d, nullptr));
  SHOW(cuTexObjectCreate(&t, &r, nullptr, nullptr));
}

CASE(create_without_context) {
  CU(cuInit(0));
  CUtexObject t = 0;
  CUDA_RESOURCE_DESC r{};
  CUDA_TEXTURE_DESC d = point();
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
  SHOW(cuTexObjectDestroy(1));
}

CASE(create_of_null_array) {
  Gpu gpu;
  CUtexObject t = 0;
  CUDA_TEXTURE_DESC d = point();
  CUDA_RESOURCE_DESC r = of_array(nullptr);
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
  r = of_mipmap(nullptr);
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
}

CASE(create_of_unknown_resource) {
  Gpu gpu;
  CUtexObject t = 0;
  CUDA_TEXTURE_DESC d = point();
  CUDA_RESOURCE_DESC r{};
  r.resType = static_cast<CUresourcetype>(9);
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
}

CASE(create_with_flags_in_resource) {
  Gpu gpu;
  Array a(shape(16, 16));
  CUtexObject t = 0;
  CUDA_TEXTURE_DESC d = point();
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  r.flags = 1;
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
}

CASE(create_with_bad_modes) {
  Gpu gpu;
  Array a(shape(16, 16));
  CUtexObject t = 0;
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  CUDA_TEXTURE_DESC d = point(static_cast<CUaddress_mode>(7));
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
  d = point();
  d.filterMode = static_cast<CUfilter_mode>(5);
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
}

CASE(create_wrap_without_normalized_coordinates) {
  Gpu gpu;
  Array a(shape(16, 16));
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  for (CUaddress_mode mode : {CU_TR_ADDRESS_MODE_WRAP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_MIRROR, CU_TR_ADDRESS_MODE_BORDER}) {
    CUtexObject t = 0;
    CUDA_TEXTURE_DESC d = point(mode);
    CUresult c = cuTexObjectCreate(&t, &r, &d, nullptr);
    printf("mode %d -> %s\n", static_cast<int>(mode), code_name(c));
    if (c == CUDA_SUCCESS) CU(cuTexObjectDestroy(t));
  }
}

CASE(create_linear_filter_of_integers) {
  Gpu gpu;
  Array a(shape(16, 16, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8));
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  CUtexObject t = 0;
  CUDA_TEXTURE_DESC d = linear(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_READ_AS_INTEGER);
  CUresult c = cuTexObjectCreate(&t, &r, &d, nullptr);
  printf("linear filter of integers -> %s\n", code_name(c));
  if (c == CUDA_SUCCESS) CU(cuTexObjectDestroy(t));
}

CASE(create_mipmap_needs_normalized_coordinates) {
  Gpu gpu;
  CUmipmappedArray m = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR s = shape(16, 16);
  CU(cuMipmappedArrayCreate(&m, &s, 3));
  CUDA_RESOURCE_DESC r = of_mipmap(m);
  for (unsigned flags : {0u, static_cast<unsigned>(CU_TRSF_NORMALIZED_COORDINATES)}) {
    CUtexObject t = 0;
    CUDA_TEXTURE_DESC d = point(CU_TR_ADDRESS_MODE_CLAMP, flags);
    CUresult c = cuTexObjectCreate(&t, &r, &d, nullptr);
    printf("flags %u -> %s\n", flags, code_name(c));
    if (c == CUDA_SUCCESS) CU(cuTexObjectDestroy(t));
  }
  CU(cuMipmappedArrayDestroy(m));
}

CASE(create_seamless_without_cubemap) {
  Gpu gpu;
  Array a(shape(16, 16));
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  CUtexObject t = 0;
  CUDA_TEXTURE_DESC d = point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_SEAMLESS_CUBEMAP);
  CUresult c = cuTexObjectCreate(&t, &r, &d, nullptr);
  printf("seamless -> %s\n", code_name(c));
  if (c == CUDA_SUCCESS) CU(cuTexObjectDestroy(t));
}

CASE(create_linear_alignment) {
  Gpu gpu;
  DeviceArray<float> data(1024);
  CUDA_TEXTURE_DESC d = point();
  for (unsigned offset : {0u, 4u, 16u, 32u, 256u, 512u}) {
    CUtexObject t = 0;
    CUDA_RESOURCE_DESC r = of_linear(data.pointer + offset, CU_AD_FORMAT_FLOAT, 1, 256);
    CUresult c = cuTexObjectCreate(&t, &r, &d, nullptr);
    printf("offset %u -> %s\n", offset, code_name(c));
    if (c == CUDA_SUCCESS) CU(cuTexObjectDestroy(t));
  }
}

CASE(create_linear_bad_values) {
  Gpu gpu;
  DeviceArray<float> data(1024);
  CUtexObject t = 0;
  CUDA_TEXTURE_DESC d = point();
  CUDA_RESOURCE_DESC r = of_linear(0, CU_AD_FORMAT_FLOAT, 1, 256);
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
  r = of_linear(data.pointer, CU_AD_FORMAT_FLOAT, 3, 256);
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
  r = of_linear(data.pointer, static_cast<CUarray_format>(0x99), 1, 256);
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
  r = of_linear(data.pointer, CU_AD_FORMAT_FLOAT, 1, 0);
  SHOW(cuTexObjectCreate(&t, &r, &d, nullptr));
}

CASE(create_pitch2d_alignment) {
  Gpu gpu;
  DeviceArray<float> data(4096);
  CUDA_TEXTURE_DESC d = point();
  for (unsigned pitch : {64u, 96u, 128u, 80u, 40u, 32u}) {
    CUtexObject t = 0;
    CUDA_RESOURCE_DESC r = of_pitch(data.pointer, CU_AD_FORMAT_FLOAT, 1, 16, 8, pitch);
    CUresult c = cuTexObjectCreate(&t, &r, &d, nullptr);
    printf("pitch %u -> %s\n", pitch, code_name(c));
    if (c == CUDA_SUCCESS) CU(cuTexObjectDestroy(t));
  }
}

CASE(describe_resource) {
  Gpu gpu;
  Array a(shape(16, 16));
  Texture t(of_array(a.handle), point());
  CUDA_RESOURCE_DESC r{};
  SHOW(cuTexObjectGetResourceDesc(&r, t.handle));
  printf("type %d, same array: %d, flags %u\n", static_cast<int>(r.resType), r.res.array.hArray == a.handle, r.flags);
}

CASE(describe_linear_resource) {
  Gpu gpu;
  DeviceArray<float> data(256);
  Texture t(of_linear(data.pointer, CU_AD_FORMAT_FLOAT, 2, 1024), point());
  CUDA_RESOURCE_DESC r{};
  SHOW(cuTexObjectGetResourceDesc(&r, t.handle));
  printf("type %d, same address: %d, format %#x, %u channels, %zu bytes\n", static_cast<int>(r.resType), r.res.linear.devPtr == data.pointer,
         static_cast<unsigned>(r.res.linear.format), r.res.linear.numChannels, r.res.linear.sizeInBytes);
}

CASE(describe_mipmapped_resource) {
  Gpu gpu;
  CUmipmappedArray m = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR s = shape(16, 16);
  CU(cuMipmappedArrayCreate(&m, &s, 3));
  {
    Texture t(of_mipmap(m), point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES));
    CUDA_RESOURCE_DESC r{};
    SHOW(cuTexObjectGetResourceDesc(&r, t.handle));
    printf("type %d, same array: %d\n", static_cast<int>(r.resType), r.res.mipmap.hMipmappedArray == m);
  }
  CU(cuMipmappedArrayDestroy(m));
}

CASE(describe_sampling) {
  Gpu gpu;
  Array a(shape(16, 16));
  CUDA_TEXTURE_DESC given = linear(CU_TR_ADDRESS_MODE_BORDER, CU_TRSF_NORMALIZED_COORDINATES);
  given.addressMode[1] = CU_TR_ADDRESS_MODE_MIRROR;
  given.maxAnisotropy = 4;
  given.borderColor[0] = 0.5f;
  given.borderColor[3] = 2.0f;
  Texture t(of_array(a.handle), given);
  CUDA_TEXTURE_DESC d{};
  SHOW(cuTexObjectGetTextureDesc(&d, t.handle));
  printf("modes %d %d %d, filter %d, flags %u, anisotropy %u, border %g %g %g %g\n", static_cast<int>(d.addressMode[0]),
         static_cast<int>(d.addressMode[1]), static_cast<int>(d.addressMode[2]), static_cast<int>(d.filterMode), d.flags, d.maxAnisotropy,
         static_cast<double>(d.borderColor[0]), static_cast<double>(d.borderColor[1]), static_cast<double>(d.borderColor[2]),
         static_cast<double>(d.borderColor[3]));
}

CASE(describe_view) {
  Gpu gpu;
  Array a(shape(16, 8, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  CUDA_RESOURCE_VIEW_DESC v{};
  v.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
  v.width = 16, v.height = 8;
  Texture t(of_array(a.handle), point(), &v);
  CUDA_RESOURCE_VIEW_DESC d{};
  SHOW(cuTexObjectGetResourceViewDesc(&d, t.handle));
  printf("format %#x, %zu x %zu x %zu\n", static_cast<unsigned>(d.format), d.width, d.height, d.depth);
  Texture plain(of_array(a.handle), point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_READ_AS_INTEGER));
  SHOW(cuTexObjectGetResourceViewDesc(&d, plain.handle));
}

CASE(describe_null_arguments) {
  Gpu gpu;
  Array a(shape(16, 16));
  Texture t(of_array(a.handle), point());
  SHOW(cuTexObjectGetResourceDesc(nullptr, t.handle));
  SHOW(cuTexObjectGetTextureDesc(nullptr, t.handle));
  SHOW(cuTexObjectGetResourceViewDesc(nullptr, t.handle));
}

CASE(destroy_zero) {
  Gpu gpu;
  SHOW(cuTexObjectDestroy(0));
}

CASE(view_of_wrong_size) {
  Gpu gpu;
  Array a(shape(16, 8, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  CUDA_TEXTURE_DESC d = point();
  CUtexObject t = 0;
  CUDA_RESOURCE_VIEW_DESC v{};
  v.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
  v.width = 15, v.height = 8;
  SHOW(cuTexObjectCreate(&t, &r, &d, &v));
  v.width = 16;
  v.format = CU_RES_VIEW_FORMAT_FLOAT_4X32;
  SHOW(cuTexObjectCreate(&t, &r, &d, &v));
}

CASE(view_of_linear_memory) {
  Gpu gpu;
  DeviceArray<float> data(256);
  CUDA_RESOURCE_DESC r = of_linear(data.pointer, CU_AD_FORMAT_FLOAT, 1, 1024);
  CUDA_TEXTURE_DESC d = point();
  CUDA_RESOURCE_VIEW_DESC v{};
  v.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
  v.width = 256;
  CUtexObject t = 0;
  SHOW(cuTexObjectCreate(&t, &r, &d, &v));
}

CASE(many_objects) {
  Gpu gpu;
  Array a(shape(16, 16));
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  CUDA_TEXTURE_DESC d = point();
  std::vector<CUtexObject> all(1000);
  for (CUtexObject& t : all) CU(cuTexObjectCreate(&t, &r, &d, nullptr));
  bool different = true;
  for (size_t i = 1; i < all.size(); ++i) different &= all[i] != all[i - 1];
  printf("1000 made, all different: %d\n", different);
  for (CUtexObject t : all) CU(cuTexObjectDestroy(t));
}

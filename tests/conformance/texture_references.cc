// Texture and surface references: what modules say of them, and the records of cuTexRefCreate.
#include "tests/conformance/case.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

struct Reference {
  CUtexref handle = nullptr;
  Reference() { CU(cuTexRefCreate(&handle)); }
  ~Reference() { CU(cuTexRefDestroy(handle)); }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
};

struct Array {
  CUarray handle = nullptr;
  explicit Array(CUDA_ARRAY_DESCRIPTOR d) { CU(cuArrayCreate(&handle, &d)); }
  ~Array() { CU(cuArrayDestroy(handle)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
};

void show_format(CUtexref t) {
  CUarray_format format{};
  int channels = 0;
  SHOW(cuTexRefGetFormat(&format, &channels, t));
  printf("format %#x, %d channels\n", static_cast<unsigned>(format), channels);
}

}  // namespace

CASE(of_modules) {
  Gpu gpu;
  Module m("kernels.fatbin");
  CUtexref t = nullptr;
  CUsurfref s = nullptr;
  SHOW(cuModuleGetTexRef(&t, m.handle, "texture"));
  SHOW(cuModuleGetSurfRef(&s, m.handle, "surface"));
}

CASE(of_modules_null_arguments) {
  Gpu gpu;
  Module m("kernels.fatbin");
  CUtexref t = nullptr;
  CUsurfref s = nullptr;
  SHOW(cuModuleGetTexRef(nullptr, m.handle, "texture"));
  SHOW(cuModuleGetTexRef(&t, m.handle, nullptr));
  SHOW(cuModuleGetTexRef(&t, nullptr, "texture"));
  SHOW(cuModuleGetSurfRef(nullptr, m.handle, "surface"));
  SHOW(cuModuleGetSurfRef(&s, m.handle, nullptr));
  SHOW(cuModuleGetSurfRef(&s, nullptr, "surface"));
}

CASE(create_and_destroy) {
  Gpu gpu;
  CUtexref t = nullptr;
  SHOW(cuTexRefCreate(&t));
  SHOW(cuTexRefDestroy(t));
}

CASE(create_null) {
  Gpu gpu;
  SHOW(cuTexRefCreate(nullptr));
  SHOW(cuTexRefDestroy(nullptr));
}

CASE(create_without_context) {
  CU(cuInit(0));
  CUtexref t = nullptr;
  SHOW(cuTexRefCreate(&t));
}

CASE(defaults) {
  Gpu gpu;
  Reference t;
  show_format(t.handle);
  for (int dim = 0; dim < 3; ++dim) {
    CUaddress_mode mode{};
    CU(cuTexRefGetAddressMode(&mode, t.handle, dim));
    printf("dimension %d mode %d\n", dim, static_cast<int>(mode));
  }
  CUfilter_mode filter{}, mipmap{};
  unsigned flags = 9;
  int anisotropy = -1;
  float bias = -1, low = -1, high = -1, border[4] = {-1, -1, -1, -1};
  CU(cuTexRefGetFilterMode(&filter, t.handle));
  CU(cuTexRefGetMipmapFilterMode(&mipmap, t.handle));
  CU(cuTexRefGetFlags(&flags, t.handle));
  CU(cuTexRefGetMaxAnisotropy(&anisotropy, t.handle));
  CU(cuTexRefGetMipmapLevelBias(&bias, t.handle));
  CU(cuTexRefGetMipmapLevelClamp(&low, &high, t.handle));
  CU(cuTexRefGetBorderColor(border, t.handle));
  printf("filter %d, mipmap filter %d, flags %u, anisotropy %d\n", static_cast<int>(filter), static_cast<int>(mipmap), flags, anisotropy);
  printf("bias %g, clamp %g %g, border %g %g %g %g\n", static_cast<double>(bias), static_cast<double>(low), static_cast<double>(high),
         static_cast<double>(border[0]), static_cast<double>(border[1]), static_cast<double>(border[2]), static_cast<double>(border[3]));
}

CASE(defaults_of_bindings) {
  Gpu gpu;
  Reference t;
  CUdeviceptr p = 0;
  CUarray a = nullptr;
  CUmipmappedArray m = nullptr;
  SHOW(cuTexRefGetAddress(&p, t.handle));
  SHOW(cuTexRefGetArray(&a, t.handle));
  SHOW(cuTexRefGetMipmappedArray(&m, t.handle));
}

CASE(format) {
  Gpu gpu;
  Reference t;
  SHOW(cuTexRefSetFormat(t.handle, CU_AD_FORMAT_UNSIGNED_INT8, 4));
  show_format(t.handle);
  SHOW(cuTexRefSetFormat(t.handle, CU_AD_FORMAT_FLOAT, 3));
  SHOW(cuTexRefSetFormat(t.handle, static_cast<CUarray_format>(0x77), 1));
  show_format(t.handle);
}

CASE(address_mode) {
  Gpu gpu;
  Reference t;
  SHOW(cuTexRefSetAddressMode(t.handle, 1, CU_TR_ADDRESS_MODE_MIRROR));
  CUaddress_mode mode{};
  SHOW(cuTexRefGetAddressMode(&mode, t.handle, 1));
  printf("mode %d\n", static_cast<int>(mode));
  SHOW(cuTexRefSetAddressMode(t.handle, 3, CU_TR_ADDRESS_MODE_WRAP));
  SHOW(cuTexRefSetAddressMode(t.handle, 0, static_cast<CUaddress_mode>(9)));
  SHOW(cuTexRefGetAddressMode(&mode, t.handle, 3));
}

CASE(filters) {
  Gpu gpu;
  Reference t;
  CUfilter_mode mode{};
  SHOW(cuTexRefSetFilterMode(t.handle, CU_TR_FILTER_MODE_LINEAR));
  SHOW(cuTexRefGetFilterMode(&mode, t.handle));
  printf("filter %d\n", static_cast<int>(mode));
  SHOW(cuTexRefSetMipmapFilterMode(t.handle, CU_TR_FILTER_MODE_LINEAR));
  SHOW(cuTexRefGetMipmapFilterMode(&mode, t.handle));
  printf("mipmap filter %d\n", static_cast<int>(mode));
  SHOW(cuTexRefSetFilterMode(t.handle, static_cast<CUfilter_mode>(4)));
}

CASE(levels) {
  Gpu gpu;
  Reference t;
  float bias = 0, low = 0, high = 0;
  SHOW(cuTexRefSetMipmapLevelBias(t.handle, 1.5f));
  SHOW(cuTexRefGetMipmapLevelBias(&bias, t.handle));
  SHOW(cuTexRefSetMipmapLevelClamp(t.handle, 0.5f, 3.0f));
  SHOW(cuTexRefGetMipmapLevelClamp(&low, &high, t.handle));
  printf("bias %g, clamp %g %g\n", static_cast<double>(bias), static_cast<double>(low), static_cast<double>(high));
}

CASE(anisotropy) {
  Gpu gpu;
  Reference t;
  int most = 0;
  for (unsigned value : {4u, 0u, 100u}) {
    CUresult r = cuTexRefSetMaxAnisotropy(t.handle, value);
    CU(cuTexRefGetMaxAnisotropy(&most, t.handle));
    printf("set %u -> %s, now %d\n", value, code_name(r), most);
  }
}

CASE(border_color) {
  Gpu gpu;
  Reference t;
  float color[4] = {0.25f, 0.5f, 0.75f, 1.0f}, got[4] = {};
  SHOW(cuTexRefSetBorderColor(t.handle, color));
  SHOW(cuTexRefGetBorderColor(got, t.handle));
  printf("%g %g %g %g\n", static_cast<double>(got[0]), static_cast<double>(got[1]), static_cast<double>(got[2]), static_cast<double>(got[3]));
  SHOW(cuTexRefSetBorderColor(t.handle, nullptr));
}

CASE(flags) {
  Gpu gpu;
  Reference t;
  unsigned flags = 0;
  for (unsigned value : {1u, 2u, 3u, 0x10u, 0x20u, 0x100u}) {
    CUresult r = cuTexRefSetFlags(t.handle, value);
    CU(cuTexRefGetFlags(&flags, t.handle));
    printf("set %#x -> %s, now %#x\n", value, code_name(r), flags);
  }
}

CASE(bind_array) {
  Gpu gpu;
  Reference t;
  Array a({16, 8, CU_AD_FORMAT_HALF, 2});
  SHOW(cuTexRefSetArray(t.handle, a.handle, CU_TRSA_OVERRIDE_FORMAT));
  CUarray got = nullptr;
  SHOW(cuTexRefGetArray(&got, t.handle));
  printf("same array: %d\n", got == a.handle);
  show_format(t.handle);
  SHOW(cuTexRefSetArray(t.handle, a.handle, 0));
  SHOW(cuTexRefSetArray(t.handle, nullptr, CU_TRSA_OVERRIDE_FORMAT));
}

CASE(bind_mipmapped_array) {
  Gpu gpu;
  Reference t;
  CUmipmappedArray m = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR d{16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CU(cuMipmappedArrayCreate(&m, &d, 3));
  SHOW(cuTexRefSetMipmappedArray(t.handle, m, CU_TRSA_OVERRIDE_FORMAT));
  CUmipmappedArray got = nullptr;
  SHOW(cuTexRefGetMipmappedArray(&got, t.handle));
  printf("same array: %d\n", got == m);
  SHOW(cuTexRefSetMipmappedArray(t.handle, nullptr, CU_TRSA_OVERRIDE_FORMAT));
  CU(cuMipmappedArrayDestroy(m));
}

CASE(bind_address) {
  Gpu gpu;
  Reference t;
  DeviceArray<float> data(1024);
  size_t offset = 99;
  SHOW(cuTexRefSetAddress(&offset, t.handle, data.pointer, 4096));
  printf("offset %zu\n", offset);
  CUdeviceptr got = 0;
  SHOW(cuTexRefGetAddress(&got, t.handle));
  printf("same address: %d\n", got == data.pointer);
  SHOW(cuTexRefSetAddress(nullptr, t.handle, data.pointer, 4096));
}

CASE(bind_unaligned_address) {
  Gpu gpu;
  Reference t;
  DeviceArray<float> data(1024);
  size_t offset = 99;
  SHOW(cuTexRefSetAddress(&offset, t.handle, data.pointer + 16, 256));
  printf("offset %zu\n", offset);
  SHOW(cuTexRefSetAddress(nullptr, t.handle, data.pointer + 16, 256));
}

CASE(bind_bad_address) {
  Gpu gpu;
  Reference t;
  size_t offset = 99;
  SHOW(cuTexRefSetAddress(&offset, t.handle, 0, 256));
}

CASE(bind_address_2d) {
  Gpu gpu;
  Reference t;
  DeviceArray<float> data(4096);
  CUDA_ARRAY_DESCRIPTOR d{16, 16, CU_AD_FORMAT_FLOAT, 1};
  SHOW(cuTexRefSetAddress2D_v3(t.handle, &d, data.pointer, 512));
  SHOW(cuTexRefSetAddress2D_v2(t.handle, &d, data.pointer, 512));
  SHOW(cuTexRefSetAddress2D_v3(t.handle, &d, data.pointer + 4, 512));
  SHOW(cuTexRefSetAddress2D_v3(t.handle, &d, data.pointer, 500));
  SHOW(cuTexRefSetAddress2D_v3(t.handle, nullptr, data.pointer, 512));
  CUdeviceptr got = 0;
  SHOW(cuTexRefGetAddress(&got, t.handle));
  printf("same address: %d\n", got == data.pointer);
}

CASE(bindings_replace_each_other) {
  Gpu gpu;
  Reference t;
  DeviceArray<float> data(1024);
  Array a({16, 8, CU_AD_FORMAT_FLOAT, 1});
  CUdeviceptr p = 0;
  CUarray got = nullptr;
  CU(cuTexRefSetAddress(nullptr, t.handle, data.pointer, 4096));
  CU(cuTexRefSetArray(t.handle, a.handle, CU_TRSA_OVERRIDE_FORMAT));
  SHOW(cuTexRefGetAddress(&p, t.handle));
  CU(cuTexRefSetAddress(nullptr, t.handle, data.pointer, 4096));
  SHOW(cuTexRefGetArray(&got, t.handle));
}

CASE(null_reference) {
  Gpu gpu;
  unsigned flags = 0;
  SHOW(cuTexRefSetFlags(nullptr, 0));
  SHOW(cuTexRefGetFlags(&flags, nullptr));
  SHOW(cuTexRefSetFormat(nullptr, CU_AD_FORMAT_FLOAT, 1));
}

CASE(null_results) {
  Gpu gpu;
  Reference t;
  float value = 0;
  int channels = 0;
  CUarray_format format{};
  SHOW(cuTexRefGetFlags(nullptr, t.handle));
  SHOW(cuTexRefGetFilterMode(nullptr, t.handle));
  SHOW(cuTexRefGetMipmapFilterMode(nullptr, t.handle));
  SHOW(cuTexRefGetAddressMode(nullptr, t.handle, 0));
  SHOW(cuTexRefGetMipmapLevelBias(nullptr, t.handle));
  SHOW(cuTexRefGetMipmapLevelClamp(&value, nullptr, t.handle));
  SHOW(cuTexRefGetMipmapLevelClamp(nullptr, &value, t.handle));
  SHOW(cuTexRefGetMaxAnisotropy(nullptr, t.handle));
  SHOW(cuTexRefGetBorderColor(nullptr, t.handle));
  SHOW(cuTexRefGetFormat(nullptr, &channels, t.handle));
  SHOW(cuTexRefGetFormat(&format, nullptr, t.handle));
  SHOW(cuTexRefGetAddress(nullptr, t.handle));
  SHOW(cuTexRefGetArray(nullptr, t.handle));
  SHOW(cuTexRefGetMipmappedArray(nullptr, t.handle));
}

CASE(null_surface_reference) {
  Gpu gpu;
  Array a({16, 8, CU_AD_FORMAT_FLOAT, 1});
  CUarray got = nullptr;
  SHOW(cuSurfRefSetArray(nullptr, a.handle, 0));
  SHOW(cuSurfRefGetArray(&got, nullptr));
}

CASE(old_forms) {
  Gpu gpu;
  Reference t;
  unsigned offset = 99;
  CUdeviceptr_v1 got = 0;
  CUDA_ARRAY_DESCRIPTOR_v1 d{16, 16, CU_AD_FORMAT_FLOAT, 1};
  SHOW(cuTexRefSetAddress_v1(&offset, t.handle, 0x10000, 256));
  SHOW(cuTexRefSetAddress2D_v1(t.handle, &d, 0x10000, 512));
  SHOW(cuTexRefGetAddress_v1(&got, t.handle));
}

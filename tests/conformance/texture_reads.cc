// What kernels read through texture objects: formats, filters, address modes, layers, cubes,
// levels.
#include "tests/conformance/texture_kit.h"

using namespace texture_kit;

// ---- reading linear memory ----

CASE(fetch_linear) {
  Gpu gpu;
  Module m("textures.fatbin");
  DeviceArray<float> data(ramp(64, 10));
  Texture t(of_linear(data.pointer, CU_AD_FORMAT_FLOAT, 1, 256), point());
  print("fetched", read<float>(m, "fetch_1d_float", t.handle, std::vector<int>{0, 1, 7, 63}));
}

CASE(fetch_linear_outside) {
  Gpu gpu;
  Module m("textures.fatbin");
  DeviceArray<float> data(ramp(64, 10));
  Texture t(of_linear(data.pointer, CU_AD_FORMAT_FLOAT, 1, 128), point());
  print("fetched", read<float>(m, "fetch_1d_float", t.handle, std::vector<int>{31, 32, 40, -1, -2000000000}));
}

CASE(fetch_linear_normalized) {
  Gpu gpu;
  Module m("textures.fatbin");
  DeviceArray<unsigned char> data(std::vector<unsigned char>{0, 51, 255, 128, 1, 2, 3, 4});
  Texture t(of_linear(data.pointer, CU_AD_FORMAT_UNSIGNED_INT8, 1, 8), point());
  print("fetched", read<float>(m, "fetch_1d_float", t.handle, std::vector<int>{0, 1, 2, 3}));
}

CASE(fetch_linear_vectors) {
  Gpu gpu;
  Module m("textures.fatbin");
  std::vector<uint32_t> words(64);
  for (uint32_t i = 0; i < 64; ++i) words[i] = i * 1000003u;
  DeviceArray<uint32_t> data(words);
  Texture t(of_linear(data.pointer, CU_AD_FORMAT_UNSIGNED_INT32, 4, 256), point());
  struct U4 { uint32_t x, y, z, w; };
  std::vector<U4> got = read<U4>(m, "fetch_1d_uint4", t.handle, std::vector<int>{0, 5, 15, 16});
  for (const U4& u : got) printf("%u %u %u %u\n", u.x, u.y, u.z, u.w);
}

CASE(fetch_linear_halves) {
  Gpu gpu;
  Module m("textures.fatbin");
  DeviceArray<uint16_t> data(std::vector<uint16_t>{0x3c00, 0x4000, 0xbc00, 0x3555, 0x7bff, 0x0001, 0, 0});
  Texture t(of_linear(data.pointer, CU_AD_FORMAT_HALF, 1, 16), point());
  print("fetched", read<float>(m, "fetch_1d_float", t.handle, std::vector<int>{0, 1, 2, 3, 4, 5}));
}

CASE(fetch_sees_later_writes) {
  Gpu gpu;
  Module m("textures.fatbin");
  DeviceArray<float> data(ramp(16));
  Texture t(of_linear(data.pointer, CU_AD_FORMAT_FLOAT, 1, 64), point());
  print("before", read<float>(m, "fetch_1d_float", t.handle, std::vector<int>{3}));
  CU(cuMemsetD32(data.pointer, 0x3f800000, 16));
  print("after", read<float>(m, "fetch_1d_float", t.handle, std::vector<int>{3}));
}

// ---- reading arrays ----

CASE(point_1d) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(8), ramp(8));
  {
    Texture t(of_array(a->handle), point());
    print("point", read<float>(m, "tex_1d_float", t.handle, std::vector<float>{0, 0.5f, 0.999f, 1.0f, 3.5f, 7.5f, 8.0f, 100.0f, -0.5f, -3.0f}));
  }
  delete a;
}

CASE(linear_1d) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(8), std::vector<float>{0, 256, 0, 512, 1024, 0, 0, 256});
  {
    Texture t(of_array(a->handle), linear());
    print("linear", read<float>(m, "tex_1d_float", t.handle, std::vector<float>{0, 0.5f, 1.0f, 1.25f, 1.5f, 3.75f, 4.0f, 7.5f, 9.0f}));
  }
  delete a;
}

CASE(linear_1d_weights_have_eight_bits) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(2), std::vector<float>{0, 65536});
  {
    Texture t(of_array(a->handle), linear());
    // Steps of 1/1024 between the two texels: the results move in steps of 1/256.
    std::vector<float> at;
    for (int i = 0; i <= 16; ++i) at.push_back(0.75f + static_cast<float>(i) / 1024.0f);
    print("linear", read<float>(m, "tex_1d_float", t.handle, at));
  }
  delete a;
}

CASE(address_modes_point) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4), std::vector<float>{1, 2, 3, 4});
  for (CUaddress_mode mode : {CU_TR_ADDRESS_MODE_WRAP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_MIRROR, CU_TR_ADDRESS_MODE_BORDER}) {
    CUDA_TEXTURE_DESC d = point(mode, CU_TRSF_NORMALIZED_COORDINATES);
    d.borderColor[0] = 9;
    Texture t(of_array(a->handle), d);
    std::vector<float> at;
    for (int i = -5; i <= 9; ++i) at.push_back((static_cast<float>(i) + 0.5f) / 4.0f);
    char name[16];
    snprintf(name, sizeof name, "mode %d", static_cast<int>(mode));
    print(name, read<float>(m, "tex_1d_float", t.handle, at));
  }
  delete a;
}

CASE(address_modes_linear) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4), std::vector<float>{256, 512, 768, 1024});
  for (CUaddress_mode mode : {CU_TR_ADDRESS_MODE_WRAP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_MIRROR, CU_TR_ADDRESS_MODE_BORDER}) {
    Texture t(of_array(a->handle), linear(mode, CU_TRSF_NORMALIZED_COORDINATES));
    char name[16];
    snprintf(name, sizeof name, "mode %d", static_cast<int>(mode));
    print(name, read<float>(m, "tex_1d_float", t.handle, std::vector<float>{-0.25f, 0, 0.0625f, 0.125f, 0.25f, 0.5f, 0.9375f, 1.0f, 1.25f}));
  }
  delete a;
}

CASE(unnormalized_modes_other_than_clamp) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4), std::vector<float>{1, 2, 3, 4});
  for (CUaddress_mode mode : {CU_TR_ADDRESS_MODE_WRAP, CU_TR_ADDRESS_MODE_MIRROR, CU_TR_ADDRESS_MODE_BORDER}) {
    CUDA_RESOURCE_DESC r = of_array(a->handle);
    CUDA_TEXTURE_DESC d = point(mode);
    CUtexObject t = 0;
    if (cuTexObjectCreate(&t, &r, &d, nullptr) != CUDA_SUCCESS) continue;
    char name[16];
    snprintf(name, sizeof name, "mode %d", static_cast<int>(mode));
    print(name, read<float>(m, "tex_1d_float", t, std::vector<float>{-1.5f, -0.5f, 0.5f, 3.5f, 4.5f, 5.5f}));
    CU(cuTexObjectDestroy(t));
  }
  delete a;
}

CASE(point_2d) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(5, 3), ramp(15));
  {
    Texture t(of_array(a->handle), point());
    print("point", read<float>(m, "tex_2d_float", t.handle, std::vector<F2>{{0.5f, 0.5f}, {4.5f, 0.5f}, {2.9f, 1.1f}, {0.5f, 2.5f}, {4.5f, 2.5f}, {9, 9}, {-1, 1.5f}}));
  }
  delete a;
}

CASE(linear_2d) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(2, 2), std::vector<float>{0, 256, 512, 1024});
  {
    Texture t(of_array(a->handle), linear());
    print("linear", read<float>(m, "tex_2d_float", t.handle, std::vector<F2>{{0.5f, 0.5f}, {1, 0.5f}, {0.5f, 1}, {1, 1}, {0.75f, 1.25f}, {1.5f, 1.5f}}));
  }
  delete a;
}

CASE(linear_2d_normalized_coordinates) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4, 2), std::vector<float>{0, 256, 512, 768, 1024, 1280, 1536, 1792});
  {
    Texture t(of_array(a->handle), linear(CU_TR_ADDRESS_MODE_WRAP, CU_TRSF_NORMALIZED_COORDINATES));
    print("linear", read<float>(m, "tex_2d_float", t.handle, std::vector<F2>{{0.125f, 0.25f}, {0, 0}, {0.5f, 0.5f}, {0.875f, 0.75f}, {1.125f, -0.75f}}));
  }
  delete a;
}

CASE(pitch2d) {
  Gpu gpu;
  Module m("textures.fatbin");
  DeviceArray<float> data(ramp(64 * 4));
  Texture t(of_pitch(data.pointer, CU_AD_FORMAT_FLOAT, 1, 20, 4, 256), point());
  print("point", read<float>(m, "tex_2d_float", t.handle, std::vector<F2>{{0.5f, 0.5f}, {19.5f, 0.5f}, {25, 0.5f}, {3.5f, 2.5f}, {0.5f, 3.5f}, {0.5f, 7}}));
}

CASE(read_bytes_as_floats) {
  Gpu gpu;
  Module m("textures.fatbin");
  std::vector<unsigned char> bytes{0, 51, 102, 255, 255, 128, 64, 32, 1, 2, 3, 4, 0, 0, 0, 255};
  Array* a = filled(shape(2, 2, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4), bytes);
  {
    Texture t(of_array(a->handle), point());
    for (const F4& c : read<F4>(m, "tex_2d_float4", t.handle, std::vector<F2>{{0.5f, 0.5f}, {1.5f, 0.5f}, {0.5f, 1.5f}})) {
      printf("%.9g %.9g %.9g %.9g\n", static_cast<double>(c.x), static_cast<double>(c.y), static_cast<double>(c.z), static_cast<double>(c.w));
    }
  }
  delete a;
}

CASE(read_signed_as_floats) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4, 1, 0, 0, CU_AD_FORMAT_SIGNED_INT8), std::vector<signed char>{-128, -127, 0, 127});
  {
    Texture t(of_array(a->handle), point());
    print("signed", read<float>(m, "tex_2d_float", t.handle, std::vector<F2>{{0.5f, 0.5f}, {1.5f, 0.5f}, {2.5f, 0.5f}, {3.5f, 0.5f}}));
  }
  delete a;
}

CASE(read_shorts_as_floats) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4, 1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT16), std::vector<uint16_t>{0, 13107, 65535, 32768});
  {
    Texture t(of_array(a->handle), point());
    print("unsigned", read<float>(m, "tex_2d_float", t.handle, std::vector<F2>{{0.5f, 0.5f}, {1.5f, 0.5f}, {2.5f, 0.5f}, {3.5f, 0.5f}}));
  }
  delete a;
}

CASE(read_as_integers) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* bytes = filled(shape(4, 1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8), std::vector<unsigned char>{0, 1, 200, 255});
  Array* shorts = filled(shape(4, 1, 0, 0, CU_AD_FORMAT_SIGNED_INT16), std::vector<int16_t>{-32768, -1, 5, 32767});
  Array* words = filled(shape(4, 1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32), std::vector<uint32_t>{0, 0x80000000u, 7, 0xffffffffu});
  const std::vector<F2> at{{0.5f, 0.5f}, {1.5f, 0.5f}, {2.5f, 0.5f}, {3.5f, 0.5f}};
  {
    Texture t(of_array(bytes->handle), point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_READ_AS_INTEGER));
    print_whole("bytes", read<unsigned>(m, "tex_2d_uint", t.handle, at));
    Texture u(of_array(shorts->handle), point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_READ_AS_INTEGER));
    print_whole("shorts", read<int>(m, "tex_2d_int", u.handle, at));
    Texture v(of_array(words->handle), point());
    print_whole("words", read<unsigned>(m, "tex_2d_uint", v.handle, at));
  }
  delete bytes;
  delete shorts;
  delete words;
}

CASE(read_packed_bytes) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(2, 1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4), std::vector<unsigned char>{1, 2, 3, 4, 250, 251, 252, 253});
  {
    Texture t(of_array(a->handle), point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_READ_AS_INTEGER));
    print_whole("packed", read<uint32_t>(m, "tex_2d_uchar4", t.handle, std::vector<F2>{{0.5f, 0.5f}, {1.5f, 0.5f}}));
  }
  delete a;
}

CASE(read_halves) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4, 1, 0, 0, CU_AD_FORMAT_HALF), std::vector<uint16_t>{0x3c00, 0x4000, 0x4200, 0x4400});
  {
    Texture t(of_array(a->handle), linear());
    print("halves", read<float>(m, "tex_2d_float", t.handle, std::vector<F2>{{0.5f, 0.5f}, {1, 0.5f}, {1.25f, 0.5f}, {3.5f, 0.5f}}));
  }
  delete a;
}

CASE(read_missing_channels) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* one = filled(shape(1, 1), std::vector<float>{5});
  Array* two = filled(shape(1, 1, 0, 0, CU_AD_FORMAT_FLOAT, 2), std::vector<float>{5, 6});
  for (const Array* a : {one, two}) {
    Texture t(of_array(a->handle), point());
    for (const F4& c : read<F4>(m, "tex_2d_float4", t.handle, std::vector<F2>{{0.5f, 0.5f}})) {
      printf("%g %g %g %g\n", static_cast<double>(c.x), static_cast<double>(c.y), static_cast<double>(c.z), static_cast<double>(c.w));
    }
  }
  delete one;
  delete two;
}

CASE(read_normalized_format) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4, 1, 0, 0, CU_AD_FORMAT_UNORM_INT8X1), std::vector<unsigned char>{0, 51, 255, 102});
  {
    Texture t(of_array(a->handle), point());
    print("unorm", read<float>(m, "tex_2d_float", t.handle, std::vector<F2>{{0.5f, 0.5f}, {1.5f, 0.5f}, {2.5f, 0.5f}, {3.5f, 0.5f}}));
  }
  delete a;
}

CASE(read_through_view) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4, 1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32), std::vector<float>{1.5f, -2, 1e10f, 0});
  CUDA_RESOURCE_VIEW_DESC v{};
  v.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
  v.width = 4, v.height = 1;
  {
    Texture t(of_array(a->handle), point(), &v);
    print("viewed", read<float>(m, "tex_2d_float", t.handle, std::vector<F2>{{0.5f, 0.5f}, {1.5f, 0.5f}, {2.5f, 0.5f}, {3.5f, 0.5f}}));
  }
  delete a;
}

CASE(point_and_linear_3d) {
  Gpu gpu;
  Module m("textures.fatbin");
  std::vector<float> cube(8);
  for (size_t i = 0; i < 8; ++i) cube[i] = static_cast<float>(256u << i);
  Array* a = filled(shape(2, 2, 2), cube);
  const std::vector<F4> at{{0.5f, 0.5f, 0.5f, 0}, {1.5f, 0.5f, 1.5f, 0}, {1, 1, 1, 0}, {0.5f, 1.5f, 1, 0}, {5, 5, 5, 0}};
  {
    Texture t(of_array(a->handle), point());
    print("point", read<float>(m, "tex_3d_float", t.handle, at));
    Texture u(of_array(a->handle), linear());
    print("linear", read<float>(m, "tex_3d_float", u.handle, at));
  }
  delete a;
}

CASE(layers_of_1d) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4, 0, 3, CUDA_ARRAY3D_LAYERED), ramp(12));
  {
    Texture t(of_array(a->handle), point());
    print("layers", read<float>(m, "tex_1d_layered", t.handle, std::vector<F2>{{0.5f, 0}, {3.5f, 0}, {0.5f, 1}, {2.5f, 2}, {9, 2}, {0.5f, 7}}));
  }
  delete a;
}

CASE(layers_of_2d) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(2, 2, 3, CUDA_ARRAY3D_LAYERED), ramp(12, 0, 256));
  {
    Texture t(of_array(a->handle), linear());
    print("layers", read<float>(m, "tex_2d_layered", t.handle, std::vector<F4>{{0.5f, 0.5f, 0, 0}, {1, 1, 0, 0}, {1, 1, 1, 0}, {1.5f, 1.5f, 2, 0}, {0.5f, 0.5f, 9, 0}}));
  }
  delete a;
}

CASE(view_of_layers) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(2, 2, 4, CUDA_ARRAY3D_LAYERED), ramp(16));
  CUDA_RESOURCE_VIEW_DESC v{};
  v.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
  v.width = 2, v.height = 2, v.depth = 4, v.firstLayer = 1, v.lastLayer = 2;
  {
    CUDA_RESOURCE_DESC r = of_array(a->handle);
    CUDA_TEXTURE_DESC d = point();
    CUtexObject t = 0;
    CUresult c = cuTexObjectCreate(&t, &r, &d, &v);
    printf("view of layers 1 to 2 -> %s\n", code_name(c));
    if (c == CUDA_SUCCESS) {
      print("layers", read<float>(m, "tex_2d_layered", t, std::vector<F4>{{0.5f, 0.5f, 0, 0}, {0.5f, 0.5f, 1, 0}, {0.5f, 0.5f, 2, 0}}));
      CU(cuTexObjectDestroy(t));
    }
  }
  delete a;
}

CASE(cubemap_faces) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(2, 2, 6, CUDA_ARRAY3D_CUBEMAP), ramp(24));
  {
    Texture t(of_array(a->handle), point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES));
    print("axes", read<float>(m, "tex_cube", t.handle, std::vector<F4>{{1, 0.5f, 0.5f, 0}, {-1, 0.5f, 0.5f, 0}, {0.5f, 1, 0.5f, 0}, {0.5f, -1, 0.5f, 0}, {0.5f, 0.5f, 1, 0}, {0.5f, 0.5f, -1, 0}}));
    print("corners of +x", read<float>(m, "tex_cube", t.handle, std::vector<F4>{{1, -0.5f, -0.5f, 0}, {1, -0.5f, 0.5f, 0}, {1, 0.5f, -0.5f, 0}, {2, 1, 1, 0}}));
  }
  delete a;
}

CASE(cubemap_layers) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(1, 1, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED), ramp(12));
  {
    Texture t(of_array(a->handle), point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES));
    print("cubes", read<float>(m, "tex_cube_layered", t.handle, std::vector<F4>{{1, 0, 0, 0}, {0, 0, -1, 0}, {1, 0, 0, 1}, {0, 0, -1, 1}, {0, 1, 0, 5}}));
  }
  delete a;
}

CASE(gather) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(4, 4, 0, CUDA_ARRAY3D_TEXTURE_GATHER), ramp(16));
  {
    Texture t(of_array(a->handle), point());
    for (const F4& c : read<F4>(m, "tex_2d_gather", t.handle, std::vector<F2>{{1, 1}, {2, 3}, {0, 0}, {4, 4}})) {
      printf("%g %g %g %g\n", static_cast<double>(c.x), static_cast<double>(c.y), static_cast<double>(c.z), static_cast<double>(c.w));
    }
  }
  delete a;
}

CASE(gather_second_component) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(2, 2, 0, CUDA_ARRAY3D_TEXTURE_GATHER, CU_AD_FORMAT_FLOAT, 2), ramp(8));
  {
    Texture t(of_array(a->handle), point());
    for (const F4& c : read<F4>(m, "tex_2d_gather_green", t.handle, std::vector<F2>{{1, 1}})) {
      printf("%g %g %g %g\n", static_cast<double>(c.x), static_cast<double>(c.y), static_cast<double>(c.z), static_cast<double>(c.w));
    }
  }
  delete a;
}

// ---- levels ----

namespace {
// A mipmapped array of three levels, each of one value.
CUmipmappedArray three_levels() {
  CUmipmappedArray mipmap = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR s = shape(8, 8);
  CU(cuMipmappedArrayCreate(&mipmap, &s, 3));
  for (unsigned level = 0; level < 3; ++level) {
    CUarray a = nullptr;
    CU(cuMipmappedArrayGetLevel(&a, mipmap, level));
    const size_t side = 8u >> level;
    fill(a, std::vector<float>(side * side, static_cast<float>(256 * (level + 1))).data(), side * 4, side, 1);
  }
  return mipmap;
}
const std::vector<F4> kLevels{{0.5f, 0.5f, 0, 0}, {0.5f, 0.5f, 1, 0}, {0.5f, 0.5f, 2, 0}, {0.5f, 0.5f, 5, 0}, {0.5f, 0.5f, 0.25f, 0}, {0.5f, 0.5f, 1.75f, 0}, {0.5f, 0.5f, -3, 0}};
}  // namespace

CASE(levels_point) {
  Gpu gpu;
  Module m("textures.fatbin");
  CUmipmappedArray mipmap = three_levels();
  {
    CUDA_TEXTURE_DESC d = point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES);
    d.maxMipmapLevelClamp = 10;
    Texture t(of_mipmap(mipmap), d);
    print("levels", read<float>(m, "tex_2d_level", t.handle, kLevels));
  }
  CU(cuMipmappedArrayDestroy(mipmap));
}

CASE(levels_linear) {
  Gpu gpu;
  Module m("textures.fatbin");
  CUmipmappedArray mipmap = three_levels();
  {
    CUDA_TEXTURE_DESC d = point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES);
    d.mipmapFilterMode = CU_TR_FILTER_MODE_LINEAR;
    d.maxMipmapLevelClamp = 10;
    Texture t(of_mipmap(mipmap), d);
    print("levels", read<float>(m, "tex_2d_level", t.handle, kLevels));
  }
  CU(cuMipmappedArrayDestroy(mipmap));
}

CASE(levels_bias_and_clamp) {
  Gpu gpu;
  Module m("textures.fatbin");
  CUmipmappedArray mipmap = three_levels();
  {
    CUDA_TEXTURE_DESC d = point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES);
    d.mipmapLevelBias = 1;
    d.maxMipmapLevelClamp = 10;
    Texture biased(of_mipmap(mipmap), d);
    print("bias", read<float>(m, "tex_2d_level", biased.handle, kLevels));
    d.mipmapLevelBias = 0;
    d.minMipmapLevelClamp = 1;
    d.maxMipmapLevelClamp = 1;
    Texture clamped(of_mipmap(mipmap), d);
    print("clamp", read<float>(m, "tex_2d_level", clamped.handle, kLevels));
  }
  CU(cuMipmappedArrayDestroy(mipmap));
}

CASE(levels_by_gradient) {
  Gpu gpu;
  Module m("textures.fatbin");
  CUmipmappedArray mipmap = three_levels();
  {
    CUDA_TEXTURE_DESC d = point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES);
    d.maxMipmapLevelClamp = 10;
    Texture t(of_mipmap(mipmap), d);
    print("levels", read<float>(m, "tex_2d_gradient", t.handle, std::vector<F4>{{0.5f, 0.5f, 0.125f, 0.125f}, {0.5f, 0.5f, 0.25f, 0.25f}, {0.5f, 0.5f, 0.5f, 0.5f}}));
  }
  CU(cuMipmappedArrayDestroy(mipmap));
}

CASE(view_of_levels) {
  Gpu gpu;
  Module m("textures.fatbin");
  CUmipmappedArray mipmap = three_levels();
  {
    CUDA_RESOURCE_DESC r = of_mipmap(mipmap);
    CUDA_TEXTURE_DESC d = point(CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES);
    d.maxMipmapLevelClamp = 10;
    CUDA_RESOURCE_VIEW_DESC v{};
    v.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
    v.width = 8, v.height = 8, v.firstMipmapLevel = 1, v.lastMipmapLevel = 2;
    CUtexObject t = 0;
    CUresult c = cuTexObjectCreate(&t, &r, &d, &v);
    printf("view of levels 1 to 2 -> %s\n", code_name(c));
    if (c == CUDA_SUCCESS) {
      print("levels", read<float>(m, "tex_2d_level", t, kLevels));
      CU(cuTexObjectDestroy(t));
    }
  }
  CU(cuMipmappedArrayDestroy(mipmap));
}

CASE(query_size) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(37, 11));
  Texture t(of_array(a.handle), point());
  DeviceArray<uint32_t> out(2);
  LAUNCH(m.function("texture_size"), {1}, {1}, 0, nullptr, t.handle, out.pointer);
  print_whole("size", out.read());
}

CASE(handle_in_device_memory) {
  Gpu gpu;
  Module m("textures.ptx");
  DeviceArray<float> data(ramp(16));
  Texture t(of_linear(data.pointer, CU_AD_FORMAT_FLOAT, 1, 64), point());
  // By a graph node: the handle is plain parameter bytes.
  DeviceArray<int> at(std::vector<int>{1, 2, 3, 4});
  DeviceArray<float> out(4);
  CUdeviceptr where = at.pointer, to = out.pointer;
  int count = 4;
  CUtexObject handle = t.handle;
  void* arguments[] = {&handle, &where, &to, &count};
  CUDA_KERNEL_NODE_PARAMS p{};
  p.func = m.function("fetch_1d_float");
  p.gridDimX = p.gridDimY = p.gridDimZ = 1;
  p.blockDimX = 32, p.blockDimY = p.blockDimZ = 1;
  p.kernelParams = arguments;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &p));
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphLaunch(exec, nullptr));
  CU(cuCtxSynchronize());
  print("fetched", out.read());
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

CASE(two_threads_of_blocks) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array* a = filled(shape(64, 64), ramp(4096));
  std::vector<F2> at(4096);
  for (size_t i = 0; i < 4096; ++i) {
    const size_t column = i % 64, row = i / 64;
    at[i] = {static_cast<float>(column) + 0.5f, static_cast<float>(row) + 0.5f};
  }
  {
    Texture t(of_array(a->handle), point());
    printf("equal: %d\n", read<float>(m, "tex_2d_float", t.handle, at) == ramp(4096));
  }
  delete a;
}

// Surface objects: making, describing and ending them, and what kernels read and write through
// them.
#include "tests/conformance/case.h"

namespace {

struct Array {
  CUarray handle = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  explicit Array(const CUDA_ARRAY3D_DESCRIPTOR& d) : shape(d) { CU(cuArray3DCreate(&handle, &d)); }
  ~Array() { CU(cuArrayDestroy(handle)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  size_t rows() const { return shape.Height == 0 ? 1 : shape.Height; }
  size_t slices() const { return shape.Depth == 0 ? 1 : shape.Depth; }
  template <typename T>
  void write(const std::vector<T>& data) const {
    CUDA_MEMCPY3D c{};
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = data.data();
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    c.dstArray = handle;
    c.WidthInBytes = c.srcPitch = data.size() * sizeof(T) / rows() / slices();
    c.Height = c.srcHeight = rows();
    c.Depth = slices();
    CU(cuMemcpy3D(&c));
  }
  template <typename T>
  std::vector<T> read(size_t count) const {
    std::vector<T> data(count);
    CUDA_MEMCPY3D c{};
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    c.srcArray = handle;
    c.dstMemoryType = CU_MEMORYTYPE_HOST;
    c.dstHost = data.data();
    c.WidthInBytes = c.dstPitch = count * sizeof(T) / rows() / slices();
    c.Height = c.dstHeight = rows();
    c.Depth = slices();
    CU(cuMemcpy3D(&c));
    return data;
  }
};

CUDA_ARRAY3D_DESCRIPTOR shape(size_t w, size_t h = 0, size_t d = 0, unsigned flags = 0, CUarray_format f = CU_AD_FORMAT_UNSIGNED_INT32,
                              unsigned channels = 1) {
  return {w, h, d, f, channels, flags | CUDA_ARRAY3D_SURFACE_LDST};
}

CUDA_RESOURCE_DESC of_array(CUarray a) {
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_ARRAY;
  r.res.array.hArray = a;
  return r;
}

struct Surface {
  CUsurfObject handle = 0;
  explicit Surface(const Array& a) : Surface(a.handle) {}
  explicit Surface(CUarray a) {
    CUDA_RESOURCE_DESC r = of_array(a);
    CU(cuSurfObjectCreate(&handle, &r));
  }
  ~Surface() { CU(cuSurfObjectDestroy(handle)); }
  Surface(const Surface&) = delete;
  Surface& operator=(const Surface&) = delete;
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

}  // namespace

CASE(create_and_destroy) {
  Gpu gpu;
  Array a(shape(16, 16));
  CUsurfObject s = 0;
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  SHOW(cuSurfObjectCreate(&s, &r));
  printf("a handle: %d\n", s != 0);
  SHOW(cuSurfObjectDestroy(s));
}

CASE(destroy_what_is_not_there) {
  Gpu gpu;
  Array a(shape(16, 16));
  Surface s(a);
  SHOW(cuSurfObjectDestroy(s.handle));
  SHOW(cuSurfObjectDestroy(s.handle));
  SHOW(cuSurfObjectDestroy(1));
}

CASE(create_without_context) {
  CU(cuInit(0));
  CUsurfObject s = 0;
  CUDA_RESOURCE_DESC r = of_array(nullptr);
  SHOW(cuSurfObjectCreate(&s, &r));
}

CASE(create_of_null_array) {
  Gpu gpu;
  CUsurfObject s = 0;
  CUDA_RESOURCE_DESC r = of_array(nullptr);
  SHOW(cuSurfObjectCreate(&s, &r));
}

CASE(create_of_array_without_flag) {
  Gpu gpu;
  CUDA_ARRAY3D_DESCRIPTOR d = shape(16, 16);
  d.Flags = 0;
  Array a(d);
  CUsurfObject s = 0;
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  SHOW(cuSurfObjectCreate(&s, &r));
}

CASE(create_of_linear_memory) {
  Gpu gpu;
  DeviceArray<float> data(256);
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_LINEAR;
  r.res.linear.devPtr = data.pointer;
  r.res.linear.format = CU_AD_FORMAT_FLOAT;
  r.res.linear.numChannels = 1;
  r.res.linear.sizeInBytes = 1024;
  CUsurfObject s = 0;
  SHOW(cuSurfObjectCreate(&s, &r));
}

CASE(create_of_mipmapped_array) {
  Gpu gpu;
  CUmipmappedArray m = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR d = shape(16, 16);
  CU(cuMipmappedArrayCreate(&m, &d, 2));
  CUDA_RESOURCE_DESC r{};
  r.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  r.res.mipmap.hMipmappedArray = m;
  CUsurfObject s = 0;
  SHOW(cuSurfObjectCreate(&s, &r));
  CU(cuMipmappedArrayDestroy(m));
}

CASE(create_with_flags) {
  Gpu gpu;
  Array a(shape(16, 16));
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  r.flags = 4;
  CUsurfObject s = 0;
  SHOW(cuSurfObjectCreate(&s, &r));
}

CASE(describe) {
  Gpu gpu;
  Array a(shape(16, 16));
  Surface s(a);
  CUDA_RESOURCE_DESC r{};
  SHOW(cuSurfObjectGetResourceDesc(&r, s.handle));
  printf("type %d, same array: %d\n", static_cast<int>(r.resType), r.res.array.hArray == a.handle);
  SHOW(cuSurfObjectGetResourceDesc(nullptr, s.handle));
}

CASE(destroy_zero) {
  Gpu gpu;
  SHOW(cuSurfObjectDestroy(0));
}

CASE(write_1d) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(16));
  Surface s(a);
  LAUNCH(m.function("surface_fill_1d"), {1}, {32}, 0, nullptr, s.handle, 100u, 16);
  print("array", a.read<uint32_t>(16));
}

CASE(write_2d) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(7, 5));
  Surface s(a);
  LAUNCH(m.function("surface_fill_2d"), {1}, {64}, 0, nullptr, s.handle, 100u, 7, 5);
  print("array", a.read<uint32_t>(35));
}

CASE(write_3d) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(3, 4, 2));
  Surface s(a);
  LAUNCH(m.function("surface_fill_3d"), {1}, {32}, 0, nullptr, s.handle, 7u, 3, 4, 2);
  print("array", a.read<uint32_t>(24));
}

CASE(write_layers) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(3, 2, 3, CUDA_ARRAY3D_LAYERED));
  a.write(std::vector<uint32_t>(18, 0));
  Surface s(a);
  LAUNCH(m.function("surface_fill_layer"), {1}, {32}, 0, nullptr, s.handle, 10u, 3, 2, 1);
  LAUNCH(m.function("surface_fill_layer"), {1}, {32}, 0, nullptr, s.handle, 20u, 3, 2, 2);
  print("array", a.read<uint32_t>(18));
}

CASE(write_layers_of_1d) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(4, 0, 3, CUDA_ARRAY3D_LAYERED));
  a.write(std::vector<uint32_t>(12, 0));
  Surface s(a);
  LAUNCH(m.function("surface_fill_1d_layer"), {1}, {32}, 0, nullptr, s.handle, 10u, 4, 2);
  print("array", a.read<uint32_t>(12));
}

CASE(write_cubemap_face) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(2, 2, 6, CUDA_ARRAY3D_CUBEMAP));
  a.write(std::vector<uint32_t>(24, 0));
  Surface s(a);
  LAUNCH(m.function("surface_fill_face"), {1}, {32}, 0, nullptr, s.handle, 10u, 2, 3);
  print("array", a.read<uint32_t>(24));
}

CASE(write_level) {
  Gpu gpu;
  Module m("textures.fatbin");
  CUmipmappedArray mipmap = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR d = shape(8, 8);
  CU(cuMipmappedArrayCreate(&mipmap, &d, 3));
  CUarray level = nullptr;
  CU(cuMipmappedArrayGetLevel(&level, mipmap, 2));
  {
    Surface s(level);
    LAUNCH(m.function("surface_fill_2d"), {1}, {64}, 0, nullptr, s.handle, 40u, 2, 2);
    std::vector<uint32_t> out(4);
    CUDA_MEMCPY2D c{};
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = level;
    c.dstMemoryType = CU_MEMORYTYPE_HOST, c.dstHost = out.data(), c.dstPitch = 8;
    c.WidthInBytes = 8, c.Height = 2;
    CU(cuMemcpy2D(&c));
    print("level", out);
  }
  CU(cuMipmappedArrayDestroy(mipmap));
}

CASE(read_and_write_packed_bytes) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(3, 2, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4)), b(shape(3, 2, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4));
  std::vector<unsigned char> bytes(24);
  for (size_t i = 0; i < 24; ++i) bytes[i] = static_cast<unsigned char>(i * 10);
  a.write(bytes);
  Surface from(a), to(b);
  LAUNCH(m.function("surface_copy_uchar4"), {1}, {32}, 0, nullptr, from.handle, to.handle, 3, 2);
  print("array", b.read<unsigned char>(24));
}

CASE(read_and_write_vectors) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(2, 2, 0, 0, CU_AD_FORMAT_FLOAT, 4)), b(shape(2, 2, 0, 0, CU_AD_FORMAT_FLOAT, 4));
  std::vector<float> values(16);
  for (size_t i = 0; i < 16; ++i) values[i] = static_cast<float>(i) * 0.5f;
  a.write(values);
  Surface from(a), to(b);
  LAUNCH(m.function("surface_copy_float4"), {1}, {32}, 0, nullptr, from.handle, to.handle, 2, 2);
  for (float f : b.read<float>(16)) printf("%g ", static_cast<double>(f));
  printf("\n");
}

CASE(read_and_write_bytes) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(16, 0, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8));
  std::vector<unsigned char> bytes(16);
  for (size_t i = 0; i < 16; ++i) bytes[i] = static_cast<unsigned char>(i * 3);
  a.write(bytes);
  Surface s(a);
  DeviceArray<unsigned char> out(16);
  LAUNCH(m.function("surface_bytes"), {1}, {32}, 0, nullptr, s.handle, out.pointer, 16);
  print("read", out.read());
  print("array", a.read<unsigned char>(16));
}

CASE(read_shorts) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(4, 0, 0, 0, CU_AD_FORMAT_UNSIGNED_INT16, 2));
  a.write(std::vector<uint16_t>{1, 2, 300, 400, 50000, 60000, 7, 8});
  Surface s(a);
  DeviceArray<uint16_t> out(8);
  LAUNCH(m.function("surface_shorts"), {1}, {32}, 0, nullptr, s.handle, out.pointer, 4);
  print("read", out.read());
}

CASE(read_outside_clamped_and_zeroed) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(4, 3));
  a.write(numbers(12, 1));
  Surface s(a);
  const std::vector<int> at{0, 0, 3, 2, 4, 0, -1, 1, 2, 3, 2, -1, 100, 100};
  DeviceArray<int> where(at);
  DeviceArray<uint32_t> clamped(7), zeroed(7);
  LAUNCH(m.function("surface_read_2d"), {1}, {32}, 0, nullptr, s.handle, where.pointer, clamped.pointer, zeroed.pointer, 7);
  print("clamp", clamped.read());
  print("zero", zeroed.read());
}

CASE(write_outside_clamped_and_dropped) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(4, 3));
  a.write(std::vector<uint32_t>(12, 0));
  Surface s(a);
  LAUNCH(m.function("surface_write_outside"), {1}, {1}, 0, nullptr, s.handle, 9, 1, 5u, 0);
  LAUNCH(m.function("surface_write_outside"), {1}, {1}, 0, nullptr, s.handle, 9, 7, 6u, 1);
  LAUNCH(m.function("surface_write_outside"), {1}, {1}, 0, nullptr, s.handle, -2, -2, 8u, 1);
  print("array", a.read<uint32_t>(12));
}

FAULTING_CASE(read_outside_trapped) {
  Gpu gpu;
  Module m("textures.fatbin");
  CUDA_ARRAY3D_DESCRIPTOR d = shape(4, 3);
  CUarray a = nullptr;
  CU(cuArray3DCreate(&a, &d));
  CUsurfObject s = 0;
  CUDA_RESOURCE_DESC r = of_array(a);
  CU(cuSurfObjectCreate(&s, &r));
  CUdeviceptr out = 0;
  CU(cuMemAlloc(&out, 4));
  LAUNCH(m.function("surface_read_trap"), {1}, {1}, 0, nullptr, s, 1000000, 0, out);
  SHOW(cuCtxSynchronize());
  fflush(stdout);
  _exit(0);
}

CASE(atomic_sum) {
  Gpu gpu;
  Module m("textures.ptx");
  Array a(shape(8, 1));
  a.write(std::vector<uint32_t>(8, 0));
  Surface s(a);
  LAUNCH(m.function("surface_sum"), {4}, {64}, 0, nullptr, s.handle, 3, 256);
  print("array", a.read<uint32_t>(8));
}

CASE(query_size) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(21, 13));
  Surface s(a);
  DeviceArray<uint32_t> out(2);
  LAUNCH(m.function("surface_size"), {1}, {1}, 0, nullptr, s.handle, out.pointer);
  print("size", out.read());
}

CASE(texture_sees_surface_writes) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(8, 8));
  Surface s(a);
  LAUNCH(m.function("surface_fill_2d"), {1}, {64}, 0, nullptr, s.handle, 500u, 8, 8);
  CUDA_RESOURCE_DESC r = of_array(a.handle);
  CUDA_TEXTURE_DESC d{};
  d.addressMode[0] = d.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
  CUtexObject t = 0;
  CU(cuTexObjectCreate(&t, &r, &d, nullptr));
  DeviceArray<float> at(std::vector<float>{0.5f, 0.5f, 7.5f, 7.5f, 3.5f, 2.5f});
  DeviceArray<uint32_t> out(3);
  LAUNCH(m.function("tex_2d_uint"), {1}, {32}, 0, nullptr, t, at.pointer, out.pointer, 3);
  print("texture", out.read());
  CU(cuTexObjectDestroy(t));
}

CASE(large_surface) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(512, 512));
  Surface s(a);
  LAUNCH(m.function("surface_fill_2d"), {1024}, {256}, 0, nullptr, s.handle, 0u, 512, 512);
  printf("equal: %d\n", a.read<uint32_t>(512 * 512) == numbers(512 * 512));
}

CASE(two_surfaces_of_one_array) {
  Gpu gpu;
  Module m("textures.fatbin");
  Array a(shape(4, 1));
  Surface s(a), t(a);
  LAUNCH(m.function("surface_fill_2d"), {1}, {32}, 0, nullptr, s.handle, 30u, 4, 1);
  LAUNCH(m.function("surface_fill_2d"), {1}, {32}, 0, nullptr, t.handle, 60u, 2, 1);
  print("array", a.read<uint32_t>(4));
}

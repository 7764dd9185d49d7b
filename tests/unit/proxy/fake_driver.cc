#include "tests/unit/proxy/fake_driver.h"

#include <fcntl.h>

#include <cstring>

namespace tube::proxy::test {

namespace {

FakeState state;

template <class T>
T make_handle() {
  return reinterpret_cast<T>(state.next_handle++ << 4);
}

std::string number(const void* handle) {
  return std::to_string(reinterpret_cast<uint64_t>(handle) >> 4);
}

CUmemGenericAllocationHandle new_memory() {
  ++state.live_memory;
  return *state.memory.insert(state.next_handle++).first;
}

// A function of the driver a line.
// clang-format off
void fill_devices(Driver& d) {
  d.cuInit = [](unsigned int) { return CUDA_SUCCESS; };
  d.cuDeviceGetCount = [](int* n) { *n = 1; return CUDA_SUCCESS; };
  d.cuDeviceGet = [](CUdevice* device, int) { *device = 0; return CUDA_SUCCESS; };
  d.cuDeviceGetName = [](char* name, int, CUdevice) { std::strcpy(name, "Fake"); return CUDA_SUCCESS; };
  d.cuDeviceTotalMem_v2 = [](size_t* bytes, CUdevice) { *bytes = 1ull << 30; return CUDA_SUCCESS; };
  d.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) { *context = make_handle<CUcontext>(); return CUDA_SUCCESS; };
  d.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) { return CUDA_SUCCESS; };
  d.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
}

void fill_streams(Driver& d) {
  d.cuStreamCreate = [](CUstream* s, unsigned int) { *s = make_handle<CUstream>(); ++state.live_streams; return CUDA_SUCCESS; };
  d.cuStreamCreateWithPriority = [](CUstream* s, unsigned int, int) { *s = make_handle<CUstream>(); ++state.live_streams; return CUDA_SUCCESS; };
  d.cuStreamDestroy_v2 = [](CUstream) { --state.live_streams; return CUDA_SUCCESS; };
  d.cuStreamQuery = [](CUstream s) {
    if (state.capturing != nullptr && s == state.capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return state.stream_busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  d.cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* s) {
    *s = state.capturing != nullptr && stream == state.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  d.cuStreamWriteValue64_v2 = [](CUstream s, CUdeviceptr, cuuint64_t value, unsigned int) {
    state.calls.push_back("write s" + number(s) + " " + std::to_string(value));
    return CUDA_SUCCESS;
  };
  d.cuStreamWaitValue64_v2 = [](CUstream, CUdeviceptr, cuuint64_t, unsigned int) { return CUDA_SUCCESS; };
  d.cuEventCreate = [](CUevent* e, unsigned int) { *e = make_handle<CUevent>(); ++state.live_events; return CUDA_SUCCESS; };
  d.cuCtxGetCurrent = [](CUcontext* context) { *context = nullptr; return CUDA_SUCCESS; };
  d.cuEventDestroy_v2 = [](CUevent) { --state.live_events; return CUDA_SUCCESS; };
  d.cuEventRecord = [](CUevent e, CUstream s) { state.recorded.push_back(e); state.calls.push_back("record s" + number(s)); return CUDA_SUCCESS; };
  d.cuEventSynchronize = [](CUevent) { state.calls.push_back("event waited for"); return CUDA_SUCCESS; };
  d.cuEventQuery = [](CUevent e) {
    ++state.event_queries;
    return state.events_wait && !state.reached.contains(e) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  d.cuStreamWaitEvent = [](CUstream s, CUevent, unsigned int) { state.calls.push_back("wait s" + number(s)); return CUDA_SUCCESS; };
}

void fill_memory(Driver& d) {
  d.cuMemAddressReserve = [](CUdeviceptr* p, size_t, size_t, CUdeviceptr hint, unsigned long long) { *p = hint; return CUDA_SUCCESS; };
  d.cuMemAddressFree = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  d.cuMemCreate = [](CUmemGenericAllocationHandle* h, size_t bytes, const CUmemAllocationProp*, unsigned long long) {
    if (state.next_memory != CUDA_SUCCESS) return state.next_memory;
    if (bytes > state.memory_bytes - state.taken()) return CUDA_ERROR_OUT_OF_MEMORY;
    *h = new_memory();
    state.sizes[*h] = bytes;
    return CUDA_SUCCESS;
  };
  d.cuMemGetInfo_v2 = [](size_t* free, size_t* total) {
    *total = state.memory_bytes;
    *free = state.memory_bytes - state.taken();
    return CUDA_SUCCESS;
  };
  d.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* h, void*, CUmemAllocationHandleType) { *h = new_memory(); return CUDA_SUCCESS; };
  d.cuMemExportToShareableHandle = [](void* fd, CUmemGenericAllocationHandle h, CUmemAllocationHandleType, unsigned long long) {
    if (!state.memory.contains(h)) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<int*>(fd) = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return CUDA_SUCCESS;
  };
  d.cuMemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* prop, CUmemGenericAllocationHandle h) {
    *prop = {};
    return state.memory.contains(h) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  d.cuMemRelease = [](CUmemGenericAllocationHandle h) {
    if (state.memory.erase(h) == 0) return CUDA_ERROR_INVALID_VALUE;
    --state.live_memory;
    state.sizes.erase(h);
    return CUDA_SUCCESS;
  };
  d.cuMemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle h, unsigned long long) {
    if (!state.memory.contains(h)) return CUDA_ERROR_INVALID_VALUE;
    if (state.next_map == CUDA_SUCCESS) ++state.mappings;
    return state.next_map;
  };
  d.cuMemUnmap = [](CUdeviceptr, size_t) { --state.mappings; return CUDA_SUCCESS; };
  d.cuMemMapArrayAsync = [](CUarrayMapInfo* list, unsigned int count, CUstream) {
    for (unsigned int i = 0; i < count; ++i) {
      if (list[i].memHandle.memHandle != 0 && !state.memory.contains(list[i].memHandle.memHandle)) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  };
  d.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return state.next_access; };
  d.cuMemHostRegister_v2 = [](void*, size_t, unsigned int) { ++state.registered; return CUDA_SUCCESS; };
  d.cuMemHostUnregister = [](void*) { --state.registered; return CUDA_SUCCESS; };
  d.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* p, void* host, unsigned int) {
    *p = reinterpret_cast<CUdeviceptr>(host);
    return CUDA_SUCCESS;
  };
  d.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, size_t, CUstream s) { state.calls.push_back("upload s" + number(s)); return CUDA_SUCCESS; };
  d.cuMemcpyAsync = [](CUdeviceptr, CUdeviceptr, size_t, CUstream s) { state.calls.push_back("copy s" + number(s)); return CUDA_SUCCESS; };
}

void fill_modules(Driver& d) {
  d.cuLibraryLoadData = [](CUlibrary* library, const void*, CUjit_option*, void**, unsigned int, CUlibraryOption*, void**, unsigned int) {
    *library = make_handle<CUlibrary>();
    return CUDA_SUCCESS;
  };
  d.cuLibraryUnload = [](CUlibrary) { return CUDA_SUCCESS; };
  d.cuLibraryGetKernel = [](CUkernel* kernel, CUlibrary, const char*) { *kernel = make_handle<CUkernel>(); return CUDA_SUCCESS; };
  d.cuKernelGetFunction = [](CUfunction* f, CUkernel) { *f = make_handle<CUfunction>(); return CUDA_SUCCESS; };
  d.cuKernelGetParamInfo = [](CUkernel, size_t index, size_t* offset, size_t* size) {
    if (index >= 2) return CUDA_ERROR_INVALID_VALUE;
    *offset = index * 8;
    *size = 8;
    return CUDA_SUCCESS;
  };
  d.cuLaunchKernel = [](CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                        CUstream, void**, void**) {
    ++state.launches;
    return state.next_launch;
  };
}

// Arrays: of the calls that end one, the order is kept.
void fill_arrays(Driver& d) {
  d.cuArray3DCreate_v2 = [](CUarray* a, const CUDA_ARRAY3D_DESCRIPTOR*) { if (state.next_memory != CUDA_SUCCESS) return state.next_memory; *a = make_handle<CUarray>(); ++state.live_arrays; return CUDA_SUCCESS; };
  d.cuArrayDestroy = [](CUarray) { --state.live_arrays; state.calls.push_back("array"); return CUDA_SUCCESS; };
  d.cuArrayGetPlane = [](CUarray* a, CUarray, unsigned int) { *a = make_handle<CUarray>(); return CUDA_SUCCESS; };
  d.cuMipmappedArrayCreate = [](CUmipmappedArray* m, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned int) {
    if (state.next_memory != CUDA_SUCCESS) return state.next_memory;
    *m = make_handle<CUmipmappedArray>();
    ++state.live_mipmaps;
    return CUDA_SUCCESS;
  };
  d.cuMipmappedArrayDestroy = [](CUmipmappedArray) { --state.live_mipmaps; state.calls.push_back("mipmap"); return CUDA_SUCCESS; };
  d.cuMipmappedArrayGetLevel = [](CUarray* a, CUmipmappedArray m, unsigned int level) {
    *a = reinterpret_cast<CUarray>(reinterpret_cast<uint64_t>(m) + (level + 1) * 0x1000000);
    return CUDA_SUCCESS;
  };
  d.cuArray3DGetDescriptor_v2 = [](CUDA_ARRAY3D_DESCRIPTOR* out, CUarray) { *out = {}; return CUDA_SUCCESS; };
  d.cuTexObjectCreate = [](CUtexObject* t, const CUDA_RESOURCE_DESC*, const CUDA_TEXTURE_DESC*, const CUDA_RESOURCE_VIEW_DESC*) {
    *t = state.next_handle++;
    ++state.live_textures;
    return CUDA_SUCCESS;
  };
  d.cuTexObjectDestroy = [](CUtexObject) { --state.live_textures; state.calls.push_back("texture"); return CUDA_SUCCESS; };
  d.cuSurfObjectCreate = [](CUsurfObject* s, const CUDA_RESOURCE_DESC*) { *s = state.next_handle++; ++state.live_surfaces; return CUDA_SUCCESS; };
  d.cuSurfObjectDestroy = [](CUsurfObject) { --state.live_surfaces; state.calls.push_back("surface"); return CUDA_SUCCESS; };
  d.cuMemcpy3DAsync_v2 = [](const CUDA_MEMCPY3D*, CUstream) { state.calls.push_back("copy 3D"); return CUDA_SUCCESS; };
}
// clang-format on

}  // namespace

FakeState& fake() { return state; }

uint64_t FakeState::taken() const {
  uint64_t bytes = 0;
  for (const auto& [handle, size] : sizes) bytes += size;
  return bytes;
}

Driver make_fake_driver() {
  state = FakeState();
  Driver d;
  // A library without a single CUDA name: every member then answers CUDA_ERROR_NOT_SUPPORTED.
  std::string why;
  (void)d.load("libm.so.6", &why);
  fill_devices(d);
  fill_streams(d);
  fill_memory(d);
  fill_modules(d);
  fill_arrays(d);
  return d;
}

}  // namespace tube::proxy::test

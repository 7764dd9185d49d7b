// What libtube answers to uses of an object that are none, and to those of threads and streams that
// are not what they were when it was got; uses_test.py runs each. "equal" at the end.
//
//   misuse    seals and releases of what is not the caller's, or not any more
//   put       bytes of pinned, pageable and GPU memory, read when the call returns
//   threads   seals, puts and releases in a thread without a context
//   order     such a release comes behind what the program's default stream has
//   drop      owners that end while their stream captures, and when it is gone
//   alone     without a proxy: puts from GPU memory, and behind a stream
//   stop      waits for stdin's end, by which the proxy has stopped
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "libtube/tube.hpp"
#include "tests/programs/common.h"

namespace {

#define TUBE(call) must(#call, call)
void must(const char* what, int result) {
  if (result == TUBE_OK) return;
  fprintf(stderr, "%s answers %d: %s\n", what, result, tube_error());
  exit(1);
}

constexpr uint64_t kBytes = 1u << 20;

CUdeviceptr address(const tube_object& object) {
  return reinterpret_cast<CUdeviceptr>(object.data);
}

tube_spec spec_of(const char* name, tube_place place, uint32_t consumers = 0) {
  tube_spec spec{};
  spec.name = name;
  spec.bytes = kBytes;
  spec.place = place;
  spec.consumers = consumers;
  return spec;
}

tube_object reserve(const char* name, tube_place place) {
  const tube_spec spec = spec_of(name, place);
  tube_object object;
  TUBE(tube_reserve(&spec, &object));
  return object;
}

template <class F>
void elsewhere(F f) {
  std::thread(f).join();
}

// Each is an error of that call alone.
void run_misuse() {
  for (const tube_place place : {TUBE_HOST, TUBE_GPU}) {
    tube_object x = reserve("x", place), taken{};
    const tube_object zeroed{};
    EXPECT(tube_seal(&zeroed, TUBE_NOW) == TUBE_INVALID);
    EXPECT(tube_release(&zeroed, TUBE_NOW) == TUBE_INVALID);
    TUBE(tube_seal(&x, nullptr));
    EXPECT(tube_seal(&x, nullptr) == TUBE_INVALID);
    EXPECT(tube_seal(&x, TUBE_NOW) == TUBE_INVALID);
    EXPECT(tube_release(&x, TUBE_NOW) == TUBE_INVALID);
    TUBE(tube_get("x", TUBE_ANY, nullptr, &taken));
    EXPECT(tube_seal(&taken, TUBE_NOW) == TUBE_INVALID);
    TUBE(tube_release(&taken, nullptr));
    EXPECT(tube_release(&taken, nullptr) == TUBE_INVALID);
    TUBE(tube_delete("x"));
    x = reserve("x", place);
    TUBE(tube_release(&x, nullptr));
    EXPECT(tube_release(&x, nullptr) == TUBE_INVALID);
    EXPECT(tube_seal(&x, nullptr) == TUBE_INVALID);
    CU(cuCtxSynchronize());
  }
}

bool holds(const char* name, unsigned char value) {
  tube_object object;
  std::vector<unsigned char> seen(kBytes);
  TUBE(tube_get(name, TUBE_GPU, nullptr, &object));
  CU(cuMemcpyDtoH(seen.data(), address(object), kBytes));
  TUBE(tube_release(&object, nullptr));
  for (const unsigned char byte : seen) {
    if (byte != value) return false;
  }
  return true;
}

void run_put() {
  unsigned char* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, 0));
  std::vector<unsigned char> pageable(kBytes);
  DeviceArray<unsigned char> on_gpu(kBytes);
  for (const tube_place place : {TUBE_GPU, TUBE_HOST}) {
    const tube_spec spec = spec_of("x", place);
    for (unsigned char value = 1; value < 4; ++value) {
      for (unsigned char* bytes : {pinned, pageable.data()}) {
        memset(bytes, value, kBytes);
        TUBE(tube_put(&spec, bytes, TUBE_NOW));
        memset(bytes, 99, kBytes);
        EXPECT(holds("x", value));
        TUBE(tube_delete("x"));
      }
      CU(cuMemsetD8(on_gpu.pointer, value, kBytes));
      CU(cuCtxSynchronize());
      TUBE(tube_put(&spec, reinterpret_cast<void*>(on_gpu.pointer), TUBE_NOW));
      CU(cuMemsetD8(on_gpu.pointer, 99, kBytes));
      EXPECT(holds("x", value));
      TUBE(tube_delete("x"));
    }
  }
  // Nobody copies what only a GPU reaches, where there is none.
  elsewhere([&] {
    const tube_spec spec = spec_of("x", TUBE_HOST);
    EXPECT(tube_put(&spec, reinterpret_cast<void*>(on_gpu.pointer), TUBE_NOW) == TUBE_NO_GPU);
  });
  const tube_spec spec = spec_of("x", TUBE_HOST);
  TUBE(tube_put(&spec, pageable.data(), TUBE_NOW));
  TUBE(tube_delete("x"));
}

void run_threads() {
  const std::vector<unsigned char> bytes(kBytes, 7);
  for (const tube_place place : {TUBE_HOST, TUBE_GPU}) {
    const tube_object made = reserve("sealed there", place);
    CU(cuMemcpyHtoD(address(made), bytes.data(), kBytes));
    elsewhere([&] { TUBE(tube_seal(&made, nullptr)); });
    EXPECT(holds("sealed there", 7));
    TUBE(tube_delete("sealed there"));
    const tube_object given_up = reserve("given up there", place);
    elsewhere([&] { TUBE(tube_release(&given_up, nullptr)); });
    const tube_spec once = spec_of("once", place, 1);
    for (int i = 0; i < 8; ++i) {  // many more than fit
      TUBE(tube_put(&once, bytes.data(), nullptr));
      tube::Object object = tube::get("once", TUBE_ANY, nullptr);
      elsewhere([&] { const tube::Object mine(std::move(object)); });
      EXPECT(tube_delete("once") == TUBE_NOT_FOUND);
    }
  }
  elsewhere([&] {
    for (const tube_place place : {TUBE_HOST, TUBE_ANY}) {
      const tube_spec spec = spec_of("put there", place);
      TUBE(tube_put(&spec, bytes.data(), nullptr));
      tube_object object;
      TUBE(tube_get("put there", TUBE_ANY, nullptr, &object));
      EXPECT(memcmp(object.data, bytes.data(), kBytes) == 0);
      TUBE(tube_release(&object, nullptr));
      TUBE(tube_delete("put there"));
    }
  });
}

// The word of the wait is written when the memory may have gone to the next object.
void run_order() {
  uint32_t* word = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, 0));
  DeviceArray<unsigned char> copy(kBytes);
  for (const tube_place place : {TUBE_HOST, TUBE_GPU}) {
    const std::vector<unsigned char> bytes(kBytes, 7);
    const tube_spec spec = spec_of("x", place);
    TUBE(tube_put(&spec, bytes.data(), TUBE_NOW));
    tube_object x;
    TUBE(tube_get("x", TUBE_ANY, CU_STREAM_LEGACY, &x));
    *word = 0;
    CU(cuStreamWaitValue32(CU_STREAM_LEGACY, reinterpret_cast<CUdeviceptr>(word), 1,
                           CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuMemcpyAsync(copy.pointer, address(x), kBytes, CU_STREAM_LEGACY));
    elsewhere([&] { TUBE(tube_release(&x, nullptr)); });
    TUBE(tube_delete("x"));
    const tube_object next = reserve("y", place), another = reserve("z", place);
    EXPECT(next.data != x.data && another.data != x.data);
    std::atomic_ref(*word).store(1);
    CU(cuCtxSynchronize());
    const std::vector<unsigned char> seen = copy.read();
    EXPECT(seen[0] == 7 && seen[kBytes - 1] == 7);
    TUBE(tube_release(&next, TUBE_NOW));
    TUBE(tube_release(&another, TUBE_NOW));
  }
}

void run_drop() {
  const std::vector<unsigned char> bytes(kBytes, 7);
  const tube_spec once = spec_of("once", TUBE_GPU, 1);
  tube_object seen;
  for (const bool ends : {false, true}) {
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TUBE(tube_put(&once, bytes.data(), TUBE_NOW));
    {
      tube::Object object = tube::get("once", TUBE_GPU, stream);
      if (ends) CU(cuStreamDestroy(stream));
      else CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      EXPECT(tube_release(&object.get(), stream) != TUBE_OK);
    }
    if (!ends) {
      CUgraph graph = nullptr;
      TUBE(tube_peek("once", &seen));
      CU(cuStreamEndCapture(stream, &graph));
      CU(cuGraphDestroy(graph));
    }
    EXPECT(tube_delete("once") == TUBE_NOT_FOUND);
  }
}

void run_alone() {
  EXPECT(tube_connected() == 0);
  CUstream stream = nullptr;
  unsigned char* pinned = nullptr;
  DeviceArray<unsigned char> on_gpu(kBytes);
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, 0));
  for (const tube_stream behind : {static_cast<tube_stream>(stream), TUBE_NOW}) {
    for (const bool direct : {true, false}) {
      memset(pinned, 0, kBytes);
      CU(cuMemsetD8Async(on_gpu.pointer, 7, kBytes, stream));
      CU(cuMemcpyDtoHAsync(pinned, on_gpu.pointer, kBytes, stream));
      if (behind == TUBE_NOW) CU(cuStreamSynchronize(stream));
      TUBE(tube_store("x", direct ? reinterpret_cast<void*>(on_gpu.pointer) : pinned, kBytes,
                      behind));
      tube_object x;
      TUBE(tube_get("x", TUBE_ANY, TUBE_NOW, &x));
      for (uint64_t i = 0; i < kBytes; ++i) EXPECT(static_cast<unsigned char*>(x.data)[i] == 7);
      TUBE(tube_release(&x, TUBE_NOW));
      TUBE(tube_delete("x"));
    }
  }
  elsewhere([&] {
    EXPECT(tube_store("x", reinterpret_cast<void*>(on_gpu.pointer), kBytes, TUBE_NOW) ==
           TUBE_NO_GPU);
    EXPECT(tube_delete("x") == TUBE_NOT_FOUND);
  });
}

void run_stop() {
  tube_object x;
  const tube_spec spec = spec_of("x", TUBE_HOST);
  const std::vector<unsigned char> bytes(kBytes, 7);
  TUBE(tube_put(&spec, bytes.data(), TUBE_NOW));
  TUBE(tube_get("x", TUBE_ANY, TUBE_NOW, &x));
  printf("here\n");
  fflush(stdout);
  char c;
  while (read(0, &c, 1) > 0) {
  }
  EXPECT(tube_wait("never", TUBE_ANY, TUBE_NOW, TUBE_FOREVER, &x) == TUBE_GONE);
  EXPECT(tube_put(&spec, bytes.data(), TUBE_NOW) == TUBE_GONE);
  EXPECT(tube_delete("x") == TUBE_GONE);
}

}  // namespace

int main(int, char** argv) {
  const std::string scene = argv[1];
  CUdevice device = 0;
  CUcontext context = nullptr;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  if (scene == "misuse") run_misuse();
  else if (scene == "put") run_put();
  else if (scene == "threads") run_threads();
  else if (scene == "order") run_order();
  else if (scene == "drop") run_drop();
  else if (scene == "alone") run_alone();
  else if (scene == "stop") run_stop();
  else return 2;
  printf("equal\n");
  return 0;
}

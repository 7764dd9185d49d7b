// Programs whose streams wait while they put and take objects, each told on its command line;
// order_test.py says what must come of it. The word of a gate is opened by the program itself, so
// that it knows what cannot have happened before. "equal" at the end.
//
//   upload            a small synchronous copy into an object is over when it returns
//   seal              an object that the legacy stream writes, sealed behind a blocking stream
//   release           one that the legacy stream reads, released behind a blocking stream
//   own               an object whose seal stands is taken, used and released on another stream
//   gets              copies of objects in host memory, taken first on a stream that stands
//   stand NAME        takes a copy of the object on a stream that stands, until stdin ends
//   lose NAME [MIB]   seals an object behind a host function that waits for stdin's end, and waits
//                     for its stream, or for so much memory
//   busy MIB          allocates that much, which cannot move: a stream stands until stdin ends
//   capture           releases on a stream that captures are refused
//   quota MIB         two objects of that size, of which the program may have one at a time
//   two MIB           an object of that size on one GPU, an allocation and an object on another one
//   far               takes an object on another GPU before it is written
//   queues N          N copies of objects that one stream writes, which stands until stdin ends
//   renew NAME N      N times: a new object of that name, with its number; says so, and waits for a
//                     line
//   follow NAME N     waits for a line, takes the object, which it keeps until the next one, and
//                     says so; how many were not the newest
//   room MIB          tube_get's answer on the GPU, for an object of that size in host memory
//   hoard MIB         allocates that much until stdin ends
//   delete NAME
//   go NAME           takes the copy that another program got first
#include <atomic>
#include <string>
#include <vector>

#include "libtube/tube.h"
#include "tests/programs/common.h"

namespace {

#define TUBE(call) must(#call, call)
void must(const char* what, int result) {
  if (result == TUBE_OK) return;
  fprintf(stderr, "%s answers %d: %s\n", what, result, tube_error());
  exit(1);
}

constexpr uint64_t kCopied = 4u << 20;
constexpr int kLooks = 2000;  // that something which must not happen is given to happen

CUdeviceptr address(const tube_object& object) {
  return reinterpret_cast<CUdeviceptr>(object.data);
}

CUstream new_stream(unsigned flags) {
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, flags));
  return stream;
}

// Streams that come here wait until it is opened.
class Gate {
 public:
  Gate() {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&word_), sizeof *word_, 0));
    *word_ = 0;
  }
  void hold(CUstream stream) {
    CU(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word_), 1,
                           CU_STREAM_WAIT_VALUE_GEQ));
  }
  void close() { std::atomic_ref(*word_).store(0); }
  void open() { std::atomic_ref(*word_).store(1); }

 private:
  uint32_t* word_ = nullptr;
};

void until_told() {
  char c;
  while (read(0, &c, 1) > 0) {
  }
}

bool stands(CUstream stream) {
  for (int i = 0; i < kLooks; ++i) {
    if (cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) return false;
  }
  return true;
}

tube_object reserve(const char* name, uint64_t bytes, tube_place place = TUBE_GPU) {
  tube_spec spec{};
  spec.name = name;
  spec.bytes = bytes;
  spec.place = place;
  tube_object object;
  TUBE(tube_reserve(&spec, &object));
  return object;
}

// The copy stands behind a large one in the GPU's engine, so an early return shows.
void run_upload() {
  constexpr uint64_t kLarge = 64u << 20, kSmall = 48u << 10;
  void* pinned = nullptr;
  CUdeviceptr target = 0;
  CU(cuMemHostAlloc(&pinned, kLarge, 0));
  CU(cuMemAlloc(&target, kLarge));
  const CUstream apart = new_stream(CU_STREAM_NON_BLOCKING);
  const tube_object x = reserve("x", kSmall);
  const std::vector<unsigned char> bytes(kSmall, 7);
  CU(cuMemsetD8(address(x), 1, kSmall));
  CU(cuCtxSynchronize());
  CU(cuMemcpyHtoDAsync(target, pinned, kLarge, apart));
  CU(cuMemcpyHtoD(address(x), bytes.data(), kSmall));
  EXPECT(cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS);
  TUBE(tube_seal(&x, TUBE_NOW));
  CU(cuCtxSynchronize());
}

void run_seal() {
  constexpr uint64_t kBytes = 1u << 20;
  const CUstream blocking = new_stream(CU_STREAM_DEFAULT),
                 consumer = new_stream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  tube_object x = reserve("x", kBytes);
  gate.hold(CU_STREAM_LEGACY);
  CU(cuMemsetD8Async(address(x), 7, kBytes, CU_STREAM_LEGACY));
  TUBE(tube_seal(&x, blocking));
  TUBE(tube_get("x", TUBE_GPU, consumer, &x));
  std::vector<unsigned char> seen(kBytes);
  DeviceArray<unsigned char> copy(kBytes);
  CU(cuMemcpyDtoDAsync(copy.pointer, address(x), kBytes, consumer));
  EXPECT(stands(consumer));
  gate.open();
  CU(cuMemcpyDtoHAsync(seen.data(), copy.pointer, kBytes, consumer));
  CU(cuStreamSynchronize(consumer));
  EXPECT(seen[0] == 7 && seen[kBytes - 1] == 7);
}

void run_release() {
  constexpr uint64_t kBytes = 4u << 20;
  const CUstream blocking = new_stream(CU_STREAM_DEFAULT),
                 other = new_stream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  DeviceArray<unsigned char> copy(kBytes);
  tube_object x = reserve("x", kBytes);
  CU(cuMemsetD8Async(address(x), 7, kBytes, other));
  TUBE(tube_seal(&x, other));
  TUBE(tube_get("x", TUBE_GPU, CU_STREAM_LEGACY, &x));
  gate.hold(CU_STREAM_LEGACY);
  CU(cuMemcpyDtoDAsync(copy.pointer, address(x), kBytes, CU_STREAM_LEGACY));
  TUBE(tube_release(&x, blocking));
  TUBE(tube_delete("x"));
  // The next ones of its size come elsewhere while it is read.
  for (const char* name : {"y", "z"}) {
    const tube_object next = reserve(name, kBytes);
    EXPECT(next.data != x.data);
    CU(cuMemsetD8Async(address(next), 9, kBytes, other));
    CU(cuStreamSynchronize(other));
    TUBE(tube_seal(&next, other));
  }
  gate.open();
  CU(cuCtxSynchronize());
  const std::vector<unsigned char> seen = copy.read();
  EXPECT(seen[0] == 7 && seen[kBytes - 1] == 7);
}

// An object in host memory, full of 7 behind what the stream has.
void put_on_host(const char* name, CUstream stream) {
  const tube_object object = reserve(name, kCopied, TUBE_HOST);
  CU(cuMemsetD8Async(address(object), 7, kCopied, stream));
  TUBE(tube_seal(&object, stream));
}

// Whether what is got on the stream is right, which waits for the stream alone.
void look_on(CUstream stream, const char* name) {
  tube_object object;
  TUBE(tube_wait(name, TUBE_GPU, stream, TUBE_FOREVER, &object));
  std::vector<unsigned char> seen(kCopied);
  CU(cuMemcpyDtoHAsync(seen.data(), address(object), kCopied, stream));
  CU(cuStreamSynchronize(stream));
  EXPECT(seen[0] == 7 && seen[kCopied - 1] == 7);
  TUBE(tube_release(&object, stream));
}

// Whoever takes a copy first: it is there for all when the object is.
void run_gets() {
  const CUstream maker = new_stream(CU_STREAM_NON_BLOCKING),
                 first = new_stream(CU_STREAM_NON_BLOCKING),
                 second = new_stream(CU_STREAM_NON_BLOCKING);
  Gate gate, made;
  put_on_host("there", maker);
  CU(cuStreamSynchronize(maker));
  made.hold(maker);
  put_on_host("later", maker);
  gate.hold(first);
  tube_object there, later;
  TUBE(tube_get("there", TUBE_GPU, first, &there));
  TUBE(tube_get("later", TUBE_GPU, first, &later));
  look_on(second, "there");
  made.open();
  look_on(second, "later");
  gate.open();
  for (const tube_object& object : {there, later}) {
    unsigned char last = 0;
    CU(cuMemcpyDtoHAsync(&last, address(object) + kCopied - 1, 1, first));
    CU(cuStreamSynchronize(first));
    EXPECT(last == 7);
    TUBE(tube_release(&object, first));
  }
}

// The host waits for nothing before it opens the gate.
void run_own() {
  const CUstream maker = new_stream(CU_STREAM_NON_BLOCKING),
                 consumer = new_stream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  DeviceArray<unsigned char> copy(kCopied);
  unsigned char* bytes = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&bytes), kCopied, 0));
  memset(bytes, 7, kCopied);
  for (const uint32_t consumers : {0u, 1u}) {
    tube_spec spec{};
    spec.name = consumers == 0 ? "own" : "used up";
    spec.bytes = kCopied;
    spec.place = TUBE_GPU;
    spec.consumers = consumers;
    tube_object x, y;
    TUBE(tube_reserve(&spec, &x));
    gate.hold(maker);
    CU(cuMemcpyHtoDAsync(address(x), bytes, kCopied, maker));
    TUBE(tube_seal(&x, maker));
    TUBE(tube_get(spec.name, TUBE_GPU, consumer, &y));
    EXPECT(y.data == x.data && y.sealed != 0);
    CU(cuMemcpyDtoDAsync(copy.pointer, address(y), kCopied, consumer));
    TUBE(tube_release(&y, consumer));
    EXPECT(stands(consumer));
    gate.open();
    CU(cuStreamSynchronize(consumer));
    const std::vector<unsigned char> seen = copy.read();
    EXPECT(seen[0] == 7 && seen[kCopied - 1] == 7);
    gate.close();
    CU(cuMemsetD8(copy.pointer, 0, kCopied));
    CU(cuCtxSynchronize());
  }
  EXPECT(tube_delete("own") == TUBE_OK);
  tube_object gone;
  EXPECT(tube_get("used up", TUBE_GPU, consumer, &gone) == TUBE_NOT_FOUND);
}

void run_stand(const char* name) {
  const CUstream maker = new_stream(CU_STREAM_NON_BLOCKING),
                 first = new_stream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  put_on_host(name, maker);
  gate.hold(first);
  tube_object object;
  TUBE(tube_get(name, TUBE_GPU, first, &object));
  printf("here\n");
  fflush(stdout);
  until_told();
  gate.open();
  CU(cuStreamSynchronize(first));
}

void run_lose(const char* name, uint64_t bytes_wanted) {
  const CUstream maker = new_stream(CU_STREAM_NON_BLOCKING);
  unsigned char* bytes = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&bytes), kCopied, 0));
  const tube_object object = reserve(name, kCopied);
  CU(cuLaunchHostFunc(
      maker, [](void*) { until_told(); }, nullptr));
  CU(cuMemcpyHtoDAsync(address(object), bytes, kCopied, maker));
  TUBE(tube_seal(&object, maker));
  tube_object seen;
  TUBE(tube_peek(name, &seen));  // the seal has arrived
  printf("here\n");
  fflush(stdout);
  CUdeviceptr wanted = 0;
  if (bytes_wanted != 0) CU(cuMemAlloc(&wanted, bytes_wanted));
  CU(cuStreamSynchronize(maker));
}

bool next_line() {
  char c = 0;
  while (read(0, &c, 1) == 1) {
    if (c == '\n') return true;
  }
  return false;
}

[[noreturn]] void run_renew(const char* name, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    if (i != 0) TUBE(tube_delete(name));
    const tube_object object = reserve(name, sizeof(int), TUBE_HOST);
    memcpy(object.data, &i, sizeof i);
    TUBE(tube_seal(&object, TUBE_NOW));
    (void)!write(1, "\n", 1);
    if (!next_line()) exit(1);
  }
  TUBE(tube_delete(name));
  exit(0);  // nobody reads what comes
}

[[noreturn]] void run_follow(const char* name, int rounds) {
  tube_object before{};
  int stale = 0;
  for (int i = 0; i < rounds && next_line(); ++i) {
    tube_object object;
    TUBE(tube_wait(name, TUBE_HOST, TUBE_NOW, TUBE_FOREVER, &object));
    stale += memcmp(object.data, &i, sizeof i) != 0 ? 1 : 0;
    if (before.data != nullptr) TUBE(tube_release(&before, TUBE_NOW));
    before = object;
    (void)!write(1, "\n", 1);
  }
  TUBE(tube_release(&before, TUBE_NOW));
  fprintf(stderr, "%d of %d were not the newest\n", stale, rounds);
  exit(stale == 0 ? 0 : 1);
}

void run_room(uint64_t bytes) {
  const std::vector<unsigned char> data(bytes, 7);
  tube_spec spec{};
  spec.name = "wide";
  spec.bytes = bytes;
  spec.place = TUBE_HOST;
  TUBE(tube_put(&spec, data.data(), TUBE_NOW));
  tube_object object;
  const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  const int answer = tube_get("wide", TUBE_GPU, stream, &object);
  TUBE(tube_delete("wide"));
  if (answer == TUBE_OK) {
    unsigned char last = 0;
    CU(cuMemcpyDtoHAsync(&last, address(object) + bytes - 1, 1, stream));
    CU(cuStreamSynchronize(stream));
    EXPECT(last == 7);
    TUBE(tube_release(&object, stream));
  }
  printf("%d\n", answer);
}

// `stands`: its memory cannot move.
void run_hoard(uint64_t bytes, bool stands) {
  constexpr uint64_t kEach = 4u << 20;
  for (uint64_t done = 0; done < bytes; done += kEach) {
    CUdeviceptr at = 0;
    CU(cuMemAlloc(&at, kEach));
    CU(cuMemsetD8(at, 5, kEach));
  }
  CU(cuCtxSynchronize());
  if (stands)
    CU(cuLaunchHostFunc(
        new_stream(CU_STREAM_NON_BLOCKING), [](void*) { until_told(); }, nullptr));
  printf("here\n");
  fflush(stdout);
  until_told();
  CU(cuCtxSynchronize());
}

void run_capture() {
  const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  DeviceArray<unsigned char> copy(kCopied);
  tube_object x = reserve("x", kCopied);
  CU(cuMemsetD8Async(address(x), 7, kCopied, stream));
  TUBE(tube_seal(&x, stream));
  TUBE(tube_get("x", TUBE_GPU, stream, &x));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU(cuMemcpyDtoDAsync(copy.pointer, address(x), kCopied, stream));
  EXPECT(tube_release(&x, stream) != TUBE_OK);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphLaunch(exec, stream));
  TUBE(tube_release(&x, stream));
  TUBE(tube_delete("x"));
  CU(cuStreamSynchronize(stream));
  const std::vector<unsigned char> seen = copy.read();
  EXPECT(seen[0] == 7 && seen[kCopied - 1] == 7);
}

// `device`: CUDA's ordinal plus 1.
int try_reserve(const char* name, uint64_t bytes, int device, tube_object* object) {
  tube_spec spec{};
  spec.name = name;
  spec.bytes = bytes;
  spec.place = TUBE_GPU;
  spec.device = device;
  return tube_reserve(&spec, object);
}

// The second one when nobody holds the first one, which can be elsewhere then.
void run_quota(uint64_t bytes) {
  tube_object first, second;
  EXPECT(try_reserve("first", bytes, 1, &first) == TUBE_OK);
  EXPECT(try_reserve("second", bytes, 1, &second) == TUBE_NO_MEMORY);
  TUBE(tube_seal(&first, TUBE_NOW));
  EXPECT(try_reserve("second", bytes, 1, &second) == TUBE_OK);
}

CUcontext context_of(int number) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CU(cuDeviceGet(&device, number));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  return context;
}

void run_two(uint64_t bytes) {
  tube_object first, second;
  EXPECT(try_reserve("first", bytes, 1, &first) == TUBE_OK);
  CU(cuCtxSetCurrent(context_of(1)));
  { const DeviceArray<unsigned char> array(bytes); }
  CU(cuCtxSynchronize());
  EXPECT(try_reserve("second", bytes, 2, &second) == TUBE_OK);
}

void run_far() {
  const CUstream maker = new_stream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  gate.hold(maker);
  tube_object x = reserve("x", kCopied);
  CU(cuMemsetD8Async(address(x), 7, kCopied, maker));
  TUBE(tube_seal(&x, maker));
  CU(cuCtxSetCurrent(context_of(1)));
  const CUstream there = new_stream(CU_STREAM_NON_BLOCKING);
  TUBE(tube_get("x", TUBE_GPU, there, &x));
  gate.open();
  unsigned char last = 0;
  CU(cuMemcpyDtoHAsync(&last, address(x) + kCopied - 1, 1, there));
  CU(cuStreamSynchronize(there));
  EXPECT(last == 7);
  TUBE(tube_release(&x, there));
}

void run_queues(int count) {
  const CUstream maker = new_stream(CU_STREAM_NON_BLOCKING),
                 first = new_stream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  gate.hold(maker);
  std::vector<tube_object> taken(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) put_on_host(std::to_string(i).c_str(), maker);
  for (int i = 0; i < count; ++i)
    TUBE(tube_get(std::to_string(i).c_str(), TUBE_GPU, first, &taken[static_cast<size_t>(i)]));
  printf("here\n");
  fflush(stdout);
  until_told();
  gate.open();
  CU(cuStreamSynchronize(first));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scene = argv[1];
  const char* name = argc > 2 ? argv[2] : "";
  Gpu gpu;
  if (scene == "upload") run_upload();
  else if (scene == "seal") run_seal();
  else if (scene == "release") run_release();
  else if (scene == "own") run_own();
  else if (scene == "gets") run_gets();
  else if (scene == "stand") run_stand(name);
  else if (scene == "lose") run_lose(name, argc > 3 ? std::stoull(argv[3]) << 20 : 0);
  else if (scene == "busy") run_hoard(std::stoull(name) << 20, true);
  else if (scene == "capture") run_capture();
  else if (scene == "quota") run_quota(std::stoull(name) << 20);
  else if (scene == "two") run_two(std::stoull(name) << 20);
  else if (scene == "far") run_far();
  else if (scene == "queues") run_queues(atoi(name));
  else if (scene == "renew") run_renew(name, atoi(argv[3]));
  else if (scene == "follow") run_follow(name, atoi(argv[3]));
  else if (scene == "room") run_room(std::stoull(name) << 20);
  else if (scene == "hoard") run_hoard(std::stoull(name) << 20, false);
  else if (scene == "delete") TUBE(tube_delete(name));
  else if (scene == "go") look_on(new_stream(CU_STREAM_NON_BLOCKING), name);
  else return 2;
  printf("equal\n");
  return 0;
}

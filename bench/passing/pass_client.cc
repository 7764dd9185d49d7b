// The measured side of bench/pass and bench/store: two programs that hand data from one to the
// other, and programs that do nothing but ask the store.
//
//   pass_client make|take KIND FILE BYTES COUNT
//     KIND    host        copy out, shared memory, copy in
//             ipc-new     cuIpcGetMemHandle of a new allocation, opened each time
//             ipc-kept    the same allocation, opened once
//             store       reserved, written in place, sealed; taken
//             put         tube_put of a buffer; taken
//             store-host  reserved in host memory, written by the host; taken in GPU memory
//             host-up     written by the host in shared memory; copied to the GPU from there
//             store-peer  as store, taken on the second GPU, until all of it is there
//     FILE    the mailbox of both, in shared memory, made by the script
//   pass_client ask FILE PROCESSES SECONDS
//   pass_client queue FILE COUNT BYTES FILLER   COUNT objects are put, and told to be taken in that
//             order, which then happens. FILLER: percent of the GPU's free memory that the program
//             holds all the while
//
// Every object is checked by a kernel that reads all of it. Times are JSON on the last line. The
// natively measured kinds know nothing of Tube.
#include <cuda.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/client/common.h"
#include "libtube/tube.h"

namespace bench {
namespace {

// check(words, count, value, wrong): adds the words that are not `value` to *wrong.
const char* const kCheckPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry check(.param .u64 words, .param .u64 count, .param .u32 value, .param .u64 wrong)
{
  .reg .pred %p<3>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [words];
  ld.param.u64 %rd2, [count];
  ld.param.u32 %r1, [value];
  ld.param.u64 %rd3, [wrong];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  mov.u32 %r6, %nctaid.x;
  mul.lo.s32 %r7, %r6, %r3;
  cvt.u64.u32 %rd4, %r5;
  cvt.u64.u32 %rd5, %r7;
LOOP:
  setp.ge.u64 %p1, %rd4, %rd2;
  @%p1 bra END;
  shl.b64 %rd6, %rd4, 2;
  add.s64 %rd7, %rd1, %rd6;
  ld.global.u32 %r8, [%rd7];
  setp.eq.u32 %p2, %r8, %r1;
  @%p2 bra NEXT;
  atom.global.add.u32 %r8, [%rd3], 1;
NEXT:
  add.s64 %rd4, %rd4, %rd5;
  bra LOOP;
END:
  ret;
}
)";

struct Mailbox {
  std::atomic<uint64_t> made, taken, ready;
  int64_t begin_ns, reserve_ns;
  CUipcMemHandle handle;
  char name[64];
};
constexpr size_t kDataOffset = 4096;

[[noreturn]] void give_up(const char* call) {
  fprintf(stderr, "%s: %s\n", call, tube_error());
  exit(1);
}
#define TUBE(call) \
  if ((call) != TUBE_OK) give_up(#call)

void await(const std::atomic<uint64_t>& word, uint64_t value) {
  while (word.load(std::memory_order_acquire) < value) {
    static const bool few_cores = sysconf(_SC_NPROCESSORS_ONLN) < 4;
    if (few_cores) sched_yield();
    else __builtin_ia32_pause();
  }
}

Mailbox& open_mailbox(const char* path, size_t bytes) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* at = mmap(nullptr, kDataOffset + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || at == MAP_FAILED) {
    perror(path);
    exit(1);
  }
  return *static_cast<Mailbox*>(at);
}
void* data_of(Mailbox& box) { return reinterpret_cast<char*>(&box) + kDataOffset; }

CUstream begin_gpu(CUdevice device = 0) {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CU(cuInit(0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

struct Case {
  std::string kind;
  size_t bytes = 0;
  uint64_t count = 0;
  bool is(const char* name) const { return kind == name; }
  bool in_store() const { return is("store") || is("put") || is("store-host") || is("store-peer"); }
  bool in_place() const { return is("store") || is("store-peer"); }
};

tube_spec spec_of(const Case& c, Mailbox& box, uint64_t round) {
  snprintf(box.name, sizeof box.name, "pass/%lu", round);
  tube_spec spec{};
  spec.name = box.name;
  spec.bytes = c.bytes;
  spec.place = c.is("store-host") ? TUBE_HOST : TUBE_GPU;
  spec.consumers = 1;
  return spec;
}

void make(const Case& c, Mailbox& box) {
  CUstream stream = begin_gpu();
  CUdeviceptr own = 0;
  if (c.is("host") || c.is("put") || c.is("ipc-kept")) CU(cuMemAlloc(&own, c.bytes));
  box.ready.fetch_add(1);
  await(box.ready, 2);
  for (uint64_t round = 0; round < c.count; ++round) {
    const auto value = static_cast<unsigned>(round + 1);
    tube_object object{};
    box.reserve_ns = 0;
    if (c.is("ipc-new")) CU(cuMemAlloc(&own, c.bytes));
    if (c.in_place() || c.is("store-host")) {
      const tube_spec spec = spec_of(c, box, round);
      const int64_t begin = now_ns();
      TUBE(tube_reserve(&spec, &object));
      box.reserve_ns = now_ns() - begin;
      own = reinterpret_cast<CUdeviceptr>(object.data);
    }
    if (c.is("store-host") || c.is("host-up")) {
      auto* words = static_cast<unsigned*>(c.is("host-up") ? data_of(box) : object.data);
      for (size_t i = 0; i < c.bytes / 4; ++i) words[i] = value;
    } else {
      CU(cuMemsetD32Async(own, value, c.bytes / 4, stream));
      CU(cuStreamSynchronize(stream));
    }
    box.begin_ns = now_ns();
    if (c.is("host")) {
      CU(cuMemcpyDtoHAsync(data_of(box), own, c.bytes, stream));
      CU(cuStreamSynchronize(stream));
    } else if (c.is("ipc-new") || (c.is("ipc-kept") && round == 0)) {
      CU(cuIpcGetMemHandle(&box.handle, own));
    } else if (c.in_place()) {
      TUBE(tube_seal(&object, stream));
    } else if (c.is("store-host")) {
      TUBE(tube_seal(&object, TUBE_NOW));
    } else if (c.is("put")) {
      const tube_spec spec = spec_of(c, box, round);
      TUBE(tube_put(&spec, reinterpret_cast<const void*>(own), stream));
    }
    box.made.store(round + 1, std::memory_order_release);
    await(box.taken, round + 1);
    if (c.is("ipc-new")) CU(cuMemFree(own));
  }
}

class Check {
 public:
  explicit Check(CUstream stream) : stream_(stream) {
    CUmodule module = nullptr;
    CU(cuModuleLoadData(&module, kCheckPtx));
    CU(cuModuleGetFunction(&function_, module, "check"));
    CU(cuMemAlloc(&wrong_, 4));
    CU(cuMemsetD32Async(wrong_, 0, 1, stream_));
    CU(cuStreamSynchronize(stream_));
  }
  void run(CUdeviceptr words, uint64_t bytes, unsigned value) {
    uint64_t count = bytes / 4;
    const auto wanted = static_cast<unsigned>((count + 255) / 256);
    void* params[] = {&words, &count, &value, &wrong_};
    CU(cuLaunchKernel(function_, wanted < 2048 ? wanted : 2048, 1, 1, 256, 1, 1, 0, stream_, params,
                      nullptr));
  }
  unsigned wrong() {
    unsigned wrong = 0;
    CU(cuMemcpyDtoH(&wrong, wrong_, 4));
    return wrong;
  }

 private:
  CUstream stream_;
  CUfunction function_ = nullptr;
  CUdeviceptr wrong_ = 0;
};

void print(const char* name, const std::vector<int64_t>& values, const char* end) {
  printf("\"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) printf("%s%ld", i ? ", " : "", values[i]);
  printf("]%s", end);
}

void take(const Case& c, Mailbox& box) {
  CUstream stream = begin_gpu(c.is("store-peer") ? 1 : 0);
  Check check(stream);
  CUdeviceptr own = 0;
  if (c.is("host") || c.is("host-up")) CU(cuMemAlloc(&own, c.bytes));
  std::vector<int64_t> hand, use, reserve;
  box.ready.fetch_add(1);
  for (uint64_t round = 0; round < c.count; ++round) {
    tube_object object{};
    await(box.made, round + 1);
    if (c.is("host") || c.is("host-up")) {
      CU(cuMemcpyHtoDAsync(own, data_of(box), c.bytes, stream));
      CU(cuStreamSynchronize(stream));
    } else if (c.is("ipc-new") || (c.is("ipc-kept") && round == 0)) {
      CU(cuIpcOpenMemHandle(&own, box.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    } else if (c.in_store()) {
      TUBE(tube_wait(box.name, TUBE_GPU, stream, 10'000, &object));
      own = reinterpret_cast<CUdeviceptr>(object.data);
      if (c.is("store-peer") || c.is("store-host")) CU(cuStreamSynchronize(stream));
    }
    const int64_t there = now_ns();
    check.run(own, c.bytes, static_cast<unsigned>(round + 1));
    CU(cuStreamSynchronize(stream));
    const int64_t used = now_ns();
    hand.push_back(there - box.begin_ns);
    use.push_back(used - box.begin_ns);
    reserve.push_back(box.reserve_ns);
    if (c.is("ipc-new")) CU(cuIpcCloseMemHandle(own));
    if (c.in_store()) TUBE(tube_release(&object, stream));
    box.taken.store(round + 1, std::memory_order_release);
  }
  printf("{\"wrong\": %u, ", check.wrong());
  print("hand_ns", hand, ", ");
  print("use_ns", use, ", ");
  print("reserve_ns", reserve, "}\n");
}

// ---- bench/store ----

// As functions in a queue: all is put, then taken in that order, and a kernel reads each object.
void take_in_order(uint64_t count, size_t bytes, uint64_t filler) {
  CUstream stream = begin_gpu();
  Check check(stream);
  size_t free_bytes = 0, total_bytes = 0;
  CU(cuMemGetInfo(&free_bytes, &total_bytes));
  CUdeviceptr held = 0;
  if (filler != 0) CU(cuMemAlloc(&held, free_bytes / 100 * filler));
  std::vector<std::string> names;
  std::vector<const char*> turns;
  turns.reserve(count);
  for (uint64_t i = 0; i < count; ++i) names.push_back("turn/" + std::to_string(i));
  for (const std::string& name : names) turns.push_back(name.c_str());
  TUBE(tube_queue(turns.data(), turns.size()));
  std::vector<int64_t> put, taken;
  for (uint64_t i = 0; i < count; ++i) {
    tube_spec spec{};
    spec.name = turns[i];
    spec.bytes = bytes;
    spec.place = TUBE_GPU;
    spec.consumers = 1;
    tube_object object{};
    const int64_t begin = now_ns();
    TUBE(tube_reserve(&spec, &object));
    put.push_back(now_ns() - begin);
    CU(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(object.data), static_cast<unsigned>(i + 1),
                        bytes / 4, stream));
    CU(cuStreamSynchronize(stream));
    TUBE(tube_seal(&object, stream));
  }
  for (uint64_t i = 0; i < count; ++i) {
    tube_object object{};
    const int64_t begin = now_ns();
    TUBE(tube_wait(turns[i], TUBE_GPU, stream, 10'000, &object));
    CU(cuStreamSynchronize(stream));
    taken.push_back(now_ns() - begin);
    for (int reads = 0; reads < 8; ++reads)
      check.run(reinterpret_cast<CUdeviceptr>(object.data), bytes, static_cast<unsigned>(i + 1));
    CU(cuStreamSynchronize(stream));
    TUBE(tube_release(&object, stream));
  }
  printf("{\"wrong\": %u, ", check.wrong());
  print("put_ns", put, ", ");
  print("take_ns", taken, "}\n");
}

struct Rate {
  const char* name;
  uint64_t operations_each;
};

uint64_t one(int what, const std::string& shared, const std::string& own) {
  tube_object object{};
  tube_spec spec{};
  spec.name = own.c_str();
  spec.bytes = 256;
  switch (what) {
    case 0: TUBE(tube_peek(shared.c_str(), &object)); return 1;
    case 1:
      TUBE(tube_get(shared.c_str(), TUBE_ANY, TUBE_NOW, &object));
      TUBE(tube_release(&object, TUBE_NOW));
      return 2;
    default:
      spec.place = what == 2 ? TUBE_HOST : TUBE_GPU;
      TUBE(tube_reserve(&spec, &object));
      TUBE(tube_seal(&object, TUBE_NOW));
      TUBE(tube_wait(own.c_str(), TUBE_ANY, nullptr, 10'000, &object));
      TUBE(tube_release(&object, TUBE_NOW));
      TUBE(tube_delete(own.c_str()));
      return 5;
  }
}

void ask(Mailbox& box, uint64_t processes, double seconds) {
  (void)begin_gpu();
  const std::string own = "ask/" + std::to_string(getpid());
  const std::string shared = own + "/kept";
  unsigned words[64] = {};
  tube_spec spec{};
  spec.name = shared.c_str();
  spec.bytes = sizeof words;
  spec.place = TUBE_HOST;
  TUBE(tube_put(&spec, words, TUBE_NOW));
  tube_object kept{};
  TUBE(tube_wait(shared.c_str(), TUBE_HOST, TUBE_NOW, 10'000, &kept));
  TUBE(tube_release(&kept, TUBE_NOW));
  printf("{");
  constexpr const char* kNames[] = {"peek", "get_release", "host_object", "gpu_object"};
  for (int what = 0; what < 4; ++what) {
    box.ready.fetch_add(1);
    await(box.ready, processes * static_cast<uint64_t>(what + 1));
    const int64_t begin = now_ns();
    uint64_t operations = 0;
    while (now_ns() - begin < static_cast<int64_t>(seconds * 1e9)) {
      for (int i = 0; i < 16; ++i) operations += one(what, shared, own);
    }
    // What was posted is this part's, not the next one's: an answer comes behind all of it.
    if (tube_delete(own.c_str()) != TUBE_NOT_FOUND) exit(1);
    const int64_t took = now_ns() - begin;
    printf("\"%s\": [%lu, %ld]%s", kNames[what], operations, took, what == 3 ? "}\n" : ", ");
  }
  TUBE(tube_delete(shared.c_str()));
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;  // NOLINT(google-build-using-namespace)
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 4 && words[0] == "ask") {
    ask(open_mailbox(words[1].c_str(), 0), std::stoull(words[2]), std::stod(words[3]));
    return 0;
  }
  if (words.size() == 5 && words[0] == "queue") {
    take_in_order(std::stoull(words[2]), std::stoull(words[3]), std::stoull(words[4]));
    return 0;
  }
  if (words.size() != 5) return 2;
  const Case c{words[1], std::stoull(words[3]), std::stoull(words[4])};
  Mailbox& box = open_mailbox(words[2].c_str(), c.is("host") || c.is("host-up") ? c.bytes : 0);
  if (words[0] == "make") make(c, box);
  else take(c, box);
  return 0;
}

// Functions that use the workflow's store, as they are told on their command line; store_test.py
// says what must come of it. A line for each step that the test waits for; "equal" at the end.
//
//   make NAME KIB VALUE [PLACE [CONSUMERS [TTL_MS [leave]]]]   an object full of VALUE; then waits
//                               for stdin, or ends at once
//   take NAME VALUE [PLACE]     waits for the object, compares it, prints its address, releases it
//   hold NAME [PLACE]           takes the object and keeps it until stdin ends
//   keep NAME VALUE [PLACE]     the same, compares it when stdin ends, "equal", and releases it
//   borrow SEED STEPS WORKFLOW  gets and releases what `churn` makes there; "equal"
//   export NAME VALUE LIBRARIES [PLACE]    has a program that knows nothing of Tube compare the
//                               object, by its descriptor; LIBRARIES: where its libcuda.so.1 is
//   native FD SIZE OFFSET BYTES VALUE PLACE    that program
//   scribble NAME [PLACE]       takes the object, writes to it, releases it
//   scribble_later NAME         the same; the work that writes is held up until stdin ends
//   reserve NAME KIB [PLACE]    reserves and does not seal, until stdin ends
//   wait NAME MS                tube_wait's answer
//   delete NAME                 tube_delete's answer
//   chain NAME KIB ROUNDS       a producer's and a consumer's streams in one process, in turns
//   churn SEED STEPS MODEL      random puts, gets, deletes among a few names; "equal"
//   endless SEED                the same until it is killed; a line for each hundred steps
//   press SEED STEPS MIB        the same, and up to MIB of GPU memory allocated and freed in
//   between alloc MIB                   cuMemAlloc's answer; what it got is kept until stdin ends
//   queue NAME..                tube_queue's answer
//   ids COUNT                   that many unique names, one a line
//   vandal SEED                 writes nonsense over its pins, over and over, until stdin ends;
//                               prints whether the index could be written to
//   pace COUNT                  COUNT puts, gets, releases and deletes of small objects
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libtube/tube.h"
#include "tests/programs/common.h"

namespace {

constexpr unsigned kWords = 64;  // compared at each place

[[noreturn]] void give_up(const char* what, int result) {
  fprintf(stderr, "%s answers %d: %s\n", what, result, tube_error());
  exit(1);
}
void must(const char* what, int result) {
  if (result != TUBE_OK) give_up(what, result);
}
#define TUBE(call) must(#call, call)

void say(const char* word) {
  printf("%s\n", word);
  fflush(stdout);
}

void until_told() {
  char c;
  while (read(0, &c, 1) > 0) {
  }
}

tube_place place_of(const std::string& name) { return name == "host" ? TUBE_HOST : TUBE_GPU; }

CUstream new_stream() {
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

void begin_gpu() {
  CUcontext context = nullptr;
  CUdevice device = 0;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
}

void fill(const tube_object& object, unsigned value, CUstream stream) {
  if (object.place == TUBE_HOST) {
    auto* words = static_cast<unsigned*>(object.data);
    for (uint64_t i = 0; i < object.bytes / 4; ++i) words[i] = value;
    return;
  }
  CU(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(object.data), value, object.bytes / 4, stream));
}

bool holds(const tube_object& object, unsigned value, CUstream stream) {
  const uint64_t last = object.bytes / 4 < kWords ? 0 : (object.bytes / 4 - kWords) * 4;
  for (const uint64_t at : {uint64_t{0}, last / 2 / 4 * 4, last}) {
    unsigned words[kWords];
    const uint64_t bytes = object.bytes < sizeof words ? object.bytes / 4 * 4 : sizeof words;
    const char* from = static_cast<const char*>(object.data) + at;
    if (object.place == TUBE_HOST) {
      memcpy(words, from, bytes);
    } else {
      CU(cuMemcpyDtoHAsync(words, reinterpret_cast<CUdeviceptr>(from), bytes, stream));
      CU(cuStreamSynchronize(stream));
    }
    for (uint64_t i = 0; i < bytes / 4; ++i) {
      if (words[i] == value) continue;
      fprintf(stderr, "'%s' holds %x where %x was written\n", object.name, words[i], value);
      return false;
    }
  }
  return true;
}

void make(const std::string& name, uint64_t bytes, unsigned value, const tube_spec& like,
          CUstream stream) {
  tube_spec spec = like;
  spec.name = name.c_str();
  spec.bytes = bytes;
  spec.dtype = 2 | 32 << 8 | 1 << 16;
  spec.ndim = 1;
  spec.shape[0] = static_cast<int64_t>(bytes / 4);
  spec.strides[0] = 1;
  tube_object object;
  TUBE(tube_reserve(&spec, &object));
  fill(object, value, stream);
  TUBE(tube_seal(&object, spec.place == TUBE_HOST ? TUBE_NOW : stream));
}

int run_take(const std::string& name, unsigned value, tube_place place, CUstream stream) {
  tube_object object;
  TUBE(tube_wait(name.c_str(), place, stream, TUBE_FOREVER, &object));
  printf("%p\n", object.data);
  fflush(stdout);
  if (!holds(object, value, stream)) return 1;
  if (object.ndim != 1 || object.shape[0] != static_cast<int64_t>(object.bytes / 4)) return 1;
  TUBE(tube_release(&object, stream));
  say("equal");
  return 0;
}

// The consumer's stream runs behind the producer's by the store alone: the host never waits.
int run_chain(const std::string& name, uint64_t bytes, int rounds) {
  CUstream producer = new_stream(), consumer = new_stream();
  CUdeviceptr sums = 0;
  CU(cuMemAlloc(&sums, static_cast<size_t>(rounds) * 4));
  for (int i = 0; i < rounds; ++i) {
    const std::string own = name + "/" + std::to_string(i);
    tube_spec spec{};
    spec.place = TUBE_GPU;
    spec.consumers = 1;
    make(own, bytes, static_cast<unsigned>(i) + 1, spec, producer);
    tube_object object;
    TUBE(tube_wait(own.c_str(), TUBE_GPU, consumer, TUBE_FOREVER, &object));
    CU(cuMemcpyDtoDAsync(sums + static_cast<size_t>(i) * 4,
                         reinterpret_cast<CUdeviceptr>(object.data) + bytes - 4, 4, consumer));
    TUBE(tube_release(&object, consumer));
  }
  std::vector<unsigned> seen(static_cast<size_t>(rounds));
  CU(cuMemcpyDtoHAsync(seen.data(), sums, seen.size() * 4, consumer));
  CU(cuStreamSynchronize(consumer));
  for (int i = 0; i < rounds; ++i) {
    if (seen[static_cast<size_t>(i)] == static_cast<unsigned>(i) + 1) continue;
    fprintf(stderr, "round %d gave %u\n", i, seen[static_cast<size_t>(i)]);
    return 1;
  }
  say("equal");
  return 0;
}

// Names that all programs of a test share: what an object holds follows from its name and size.
struct Held {
  tube_object object;
  CUstream stream;
};

unsigned value_of(const tube_object& object, size_t letter = 6) {
  return static_cast<unsigned>(object.bytes) * 2654435761u ^
         static_cast<unsigned>(object.name[letter]) << 24;
}

class Churn {
 public:
  explicit Churn(unsigned seed) : chance_(seed) {
    for (CUstream& stream : streams_) stream = new_stream();
  }
  void step() {
    switch (chance_() % 8) {
      case 0:
      case 1: put(); break;
      case 2: remove(); break;
      case 3:
      case 4:
      case 5: take(); break;
      default: release(); break;
    }
  }
  void end() {
    while (!held_.empty()) release();
  }

 private:
  std::string name() { return "churn/" + std::string(1, static_cast<char>('a' + chance_() % 12)); }
  CUstream stream() { return streams_[chance_() % 3]; }
  void put() {
    constexpr uint64_t kSizes[] = {256, 4096, 100'000, 1u << 20, 3u << 20, 5u << 20};
    const std::string own = name();
    tube_spec spec{};
    spec.name = own.c_str();
    spec.group = "churn";
    spec.bytes = kSizes[chance_() % 6];
    spec.place = chance_() % 4 == 0 ? TUBE_HOST : TUBE_GPU;
    spec.consumers = chance_() % 3;
    tube_object object;
    const int answer = tube_reserve(&spec, &object);
    if (answer == TUBE_EXISTS || answer == TUBE_NO_MEMORY) return;
    must("reserve", answer);
    CUstream with = stream();
    fill(object, value_of(object), with);
    if (chance_() % 16 == 0) {
      TUBE(tube_release(&object, with));  // given up
    } else {
      TUBE(tube_seal(&object, object.place == TUBE_HOST ? TUBE_NOW : with));
    }
  }
  void remove() {
    const int answer = tube_delete(name().c_str());
    if (answer != TUBE_NOT_FOUND) must("delete", answer);
  }
  void take() {
    if (held_.size() >= 8) return release();
    Held held{{}, stream()};
    constexpr tube_place kPlaces[] = {TUBE_ANY, TUBE_ANY, TUBE_GPU, TUBE_HOST};
    const int answer = tube_get(name().c_str(), kPlaces[chance_() % 4], held.stream, &held.object);
    if (answer == TUBE_NOT_FOUND || answer == TUBE_NO_MEMORY) return;
    must("get", answer);
    if (!holds(held.object, value_of(held.object), held.stream)) exit(1);
    held_.push_back(held);
  }
  void release() {
    if (held_.empty()) return;
    const size_t which = chance_() % held_.size();
    const Held held = held_[which];
    held_.erase(held_.begin() + static_cast<long>(which));
    if (!holds(held.object, value_of(held.object), held.stream)) exit(1);
    TUBE(tube_release(&held.object, held.object.place == TUBE_HOST ? TUBE_NOW : held.stream));
  }

  std::mt19937 chance_;
  CUstream streams_[3];
  std::vector<Held> held_;
};

// [begin, end) of this process's mapping of a memory file of that name.
std::pair<uintptr_t, uintptr_t> mapping_of(const char* name) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  uintptr_t begin = 0, end = 0;
  bool found = false;
  while (!found && fgets(line, sizeof line, maps) != nullptr)
    found = strstr(line, name) != nullptr && sscanf(line, "%lx-%lx", &begin, &end) == 2;
  fclose(maps);
  if (!found) exit(3);
  return {begin, end};
}

int run_vandal(unsigned seed) {
  tube_object object;
  (void)tube_peek("anything", &object);
  const auto [index, index_end] = mapping_of("memfd:tube-store (");
  const bool writable =
      mprotect(reinterpret_cast<void*>(index), index_end - index, PROT_READ | PROT_WRITE) == 0;
  say(writable ? "writable" : "sealed");
  const auto [pins, pins_end] = mapping_of("memfd:tube-store-pins");
  std::atomic<bool> stop{false};
  std::thread scribble([&, begin = pins, end = pins_end] {
    std::mt19937 chance(seed);
    while (!stop.load()) {
      for (uintptr_t at = begin; at < end; at += 4)
        std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(at))
            .store(chance() % 3 == 0 ? 0 : chance(), std::memory_order_relaxed);
    }
  });
  until_told();
  stop = true;
  scribble.join();
  return 0;
}

int run_pace(int count) {
  unsigned words[64] = {};
  for (int i = 0; i < count; ++i) {
    const std::string own = "pace/" + std::to_string(getpid()) + "/" + std::to_string(i % 4);
    tube_spec spec{};
    spec.name = own.c_str();
    spec.bytes = sizeof words;
    spec.place = TUBE_GPU;
    words[0] = static_cast<unsigned>(i);
    TUBE(tube_put(&spec, words, nullptr));
    tube_object object;
    TUBE(tube_wait(own.c_str(), TUBE_GPU, nullptr, TUBE_FOREVER, &object));
    unsigned seen = 0;
    CU(cuMemcpyDtoH(&seen, reinterpret_cast<CUdeviceptr>(object.data), 4));
    if (seen != words[0]) return 1;
    TUBE(tube_release(&object, nullptr));
    TUBE(tube_delete(own.c_str()));
  }
  say("equal");
  return 0;
}

struct Words {
  std::vector<std::string> words;
  std::string at(size_t i, const char* otherwise) const {
    return i < words.size() ? words[i] : otherwise;
  }
  uint64_t number(size_t i, const char* otherwise) const { return std::stoull(at(i, otherwise)); }
};

void run_make(const Words& w, const std::string& name, CUstream stream) {
  tube_spec spec{};
  spec.place = place_of(w.at(4, "gpu"));
  spec.consumers = static_cast<uint32_t>(w.number(5, "0"));
  spec.ttl_ms = w.number(6, "0");
  make(name, w.number(2, "1") << 10, static_cast<unsigned>(w.number(3, "1")), spec, stream);
  if (w.at(7, "") == "leave") return;
  // The test may kill this program now: the seal has arrived.
  tube_object seen{};
  while (tube_peek(name.c_str(), &seen) == TUBE_OK && seen.sealed == 0) sched_yield();
  if (stream != nullptr) CU(cuStreamSynchronize(stream));
  say("here");
  until_told();
}

void run_reserve(const Words& w, const std::string& name) {
  tube_spec spec{};
  spec.name = name.c_str();
  spec.bytes = w.number(2, "1") << 10;
  spec.place = place_of(w.at(3, "gpu"));
  tube_object object;
  TUBE(tube_reserve(&spec, &object));
  say("here");
  until_told();
}

void run_hold(const Words& w, const std::string& name, CUstream stream) {
  tube_object object;
  TUBE(tube_wait(name.c_str(), place_of(w.at(2, "gpu")), stream, TUBE_FOREVER, &object));
  say("here");
  until_told();
}

// Maps what the descriptor is of, as any program does.
const char* map_natively(int fd, uint64_t size, CUdevice device) {
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr at = 0;
  CU(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(intptr_t{fd}),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CU(cuMemAddressReserve(&at, size, 0, 0, 0));
  CU(cuMemMap(at, size, 0, memory, 0));
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CU(cuMemSetAccess(at, size, &access, 1));
  return reinterpret_cast<const char*>(at);
}

int run_native(const Words& w) {
  const int fd = static_cast<int>(w.number(1, "0"));
  const uint64_t size = w.number(2, "0"), offset = w.number(3, "0"), bytes = w.number(4, "0");
  tube_object object{};
  object.place = place_of(w.at(6, "gpu"));
  object.bytes = bytes;
  if (object.place == TUBE_HOST) {
    void* at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (at == MAP_FAILED) return 1;
    object.data = at;
    return holds(object, static_cast<unsigned>(w.number(5, "1")), nullptr) ? 0 : 1;
  }
  begin_gpu();
  object.data = const_cast<char*>(map_natively(fd, size, 0)) + offset;
  return holds(object, static_cast<unsigned>(w.number(5, "1")), nullptr) ? 0 : 1;
}

int run_export(const Words& w, const std::string& name, CUstream stream) {
  tube_object object;
  TUBE(tube_wait(name.c_str(), place_of(w.at(4, "gpu")), stream, TUBE_FOREVER, &object));
  if (stream != nullptr) CU(cuStreamSynchronize(stream));
  int fd = -1;
  uint64_t size = 0, offset = 0;
  TUBE(tube_export_fd(&object, &fd, &size, &offset));
  if (fcntl(fd, F_SETFD, 0) != 0) return 1;
  const std::string numbers[] = {std::to_string(fd), std::to_string(size), std::to_string(offset),
                                 std::to_string(object.bytes)};
  const std::string value = w.at(2, "1"), place = w.at(4, "gpu");
  const std::string libraries = "LD_LIBRARY_PATH=" + w.at(3, "");
  const char* arguments[] = {"native",           "native",           numbers[0].c_str(),
                             numbers[1].c_str(), numbers[2].c_str(), numbers[3].c_str(),
                             value.c_str(),      place.c_str(),      nullptr};
  const char* environment[] = {libraries.c_str(), nullptr};
  pid_t child = 0;
  int status = 1;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments),
                  const_cast<char**>(environment)) != 0 ||
      waitpid(child, &status, 0) != child || status != 0)
    return 1;
  close(fd);
  TUBE(tube_release(&object, stream));
  // What is not held is not handed out.
  if (tube_export_fd(&object, &fd, &size, &offset) != TUBE_INVALID) return 1;
  say("equal");
  return 0;
}

int run_scribble(const Words& w, const std::string& name, CUstream stream) {
  tube_object object;
  TUBE(tube_wait(name.c_str(), place_of(w.at(2, "gpu")), stream, TUBE_FOREVER, &object));
  fill(object, 0x5c5c5c5c, stream);
  TUBE(tube_release(&object, object.place == TUBE_HOST ? TUBE_NOW : stream));
  say("done");
  return 0;
}

int run_scribble_later(const std::string& name, CUstream stream) {
  tube_object object;
  TUBE(tube_wait(name.c_str(), TUBE_GPU, stream, TUBE_FOREVER, &object));
  uint32_t* word = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, 0));
  *word = 0;
  CU(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_GEQ));
  fill(object, 0x5c5c5c5c, stream);
  TUBE(tube_release(&object, stream));
  say("here");
  until_told();
  std::atomic_ref(*word).store(1);
  CU(cuStreamSynchronize(stream));
  say("done");
  return 0;
}

int run_keep(const Words& w, const std::string& name, CUstream stream) {
  tube_object object;
  TUBE(tube_wait(name.c_str(), place_of(w.at(3, "gpu")), stream, TUBE_FOREVER, &object));
  say("here");
  until_told();
  if (!holds(object, static_cast<unsigned>(w.number(2, "1")), stream)) return 1;
  TUBE(tube_release(&object, stream));
  say("equal");
  return 0;
}

// Of another workflow, whose objects end at any time.
int run_borrow(const Words& w, CUstream stream) {
  std::mt19937 chance(static_cast<unsigned>(w.number(1, "1")));
  const std::string prefix = "//" + w.at(3, "") + "/churn/";
  std::vector<tube_object> held;
  for (uint64_t i = 0; i < w.number(2, "100") || !held.empty(); ++i) {
    const bool ends = i >= w.number(2, "100");
    if (ends || held.size() >= 6 || (!held.empty() && chance() % 2 == 0)) {
      if (!holds(held.back(), value_of(held.back(), prefix.size()), stream)) return 1;
      TUBE(tube_release(&held.back(), held.back().place == TUBE_HOST ? TUBE_NOW : stream));
      held.pop_back();
      continue;
    }
    tube_object object;
    const std::string name = prefix + static_cast<char>('a' + chance() % 12);
    const int answer = tube_get(name.c_str(), TUBE_ANY, stream, &object);
    if (answer == TUBE_NOT_FOUND || answer == TUBE_NO_MEMORY) continue;
    must("get", answer);
    if (!holds(object, value_of(object, prefix.size()), stream)) return 1;
    held.push_back(object);
  }
  say("equal");
  return 0;
}

void run_churn(const Words& w, bool endless) {
  Churn churn(static_cast<unsigned>(w.number(1, "1")));
  for (uint64_t i = 1; endless || i <= w.number(2, "100"); ++i) {
    churn.step();
    if (i % 100 == 0 && endless) say("here");
  }
  churn.end();
  say("equal");
}

// Memory of the program's own in the way of the store's, of all sizes, and objects all the while.
void run_press(const Words& w) {
  Churn churn(static_cast<unsigned>(w.number(1, "1")));
  std::mt19937 chance(static_cast<unsigned>(w.number(1, "1")));
  const uint64_t most = w.number(3, "1") << 20;
  std::vector<std::pair<CUdeviceptr, uint64_t>> own;
  uint64_t held = 0;
  for (uint64_t i = 1; i <= w.number(2, "100"); ++i) {
    churn.step();
    if (i % 8 != 0) continue;
    const uint64_t bytes = uint64_t{1 + chance() % 12} << 20;
    CUdeviceptr at = 0;
    if (held + bytes <= most && cuMemAlloc(&at, bytes) == CUDA_SUCCESS) {
      own.emplace_back(at, bytes);
      held += bytes;
    } else if (!own.empty()) {
      CU(cuMemFree(own.back().first));
      held -= own.back().second;
      own.pop_back();
    }
  }
  churn.end();
  for (const auto& [at, bytes] : own) CU(cuMemFree(at));
  say("equal");
}

void run_alloc(const Words& w) {
  CUdeviceptr at = 0;
  printf("%d\n", static_cast<int>(cuMemAlloc(&at, w.number(1, "1") << 20)));
  say("here");
  until_told();
}

void run_queue(const Words& w) {
  std::vector<const char*> names;
  for (size_t i = 1; i < w.words.size(); ++i) names.push_back(w.words[i].c_str());
  printf("%d\n", tube_queue(names.data(), names.size()));
}

void run_ids(const Words& w) {
  for (uint64_t i = 0; i < w.number(1, "1"); ++i) {
    char id[TUBE_NAME_BYTES];
    TUBE(tube_unique_id(id, sizeof id));
    say(id);
  }
}

int run_wait(const Words& w, const std::string& name) {
  tube_object object;
  printf("%d\n", tube_wait(name.c_str(), TUBE_ANY, TUBE_NOW, w.number(2, "0"), &object));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Words w{std::vector<std::string>(argv + 1, argv + argc)};
  const std::string scene = w.at(0, ""), name = w.at(1, "");
  const bool host_only = scene == "wait" || scene == "native" || scene == "delete" ||
                         scene == "ids" || scene == "queue" || scene == "vandal" ||
                         (argc > 1 && w.words.back() == "host");
  CUstream stream = nullptr;
  if (!host_only) {
    begin_gpu();
    stream = new_stream();
  }
  if (scene == "take")
    return run_take(name, static_cast<unsigned>(w.number(2, "1")), place_of(w.at(3, "gpu")),
                    stream);
  if (scene == "chain")
    return run_chain(name, w.number(2, "1") << 10, static_cast<int>(w.number(3, "1")));
  if (scene == "native") return run_native(w);
  if (scene == "export") return run_export(w, name, stream);
  if (scene == "scribble") return run_scribble(w, name, stream);
  if (scene == "scribble_later") return run_scribble_later(name, stream);
  if (scene == "keep") return run_keep(w, name, stream);
  if (scene == "borrow") return run_borrow(w, stream);
  if (scene == "vandal") return run_vandal(static_cast<unsigned>(w.number(1, "1")));
  if (scene == "pace") return run_pace(static_cast<int>(w.number(1, "1")));
  if (scene == "wait") return run_wait(w, name);
  if (scene == "make") run_make(w, name, stream);
  else if (scene == "hold") run_hold(w, name, stream);
  else if (scene == "reserve") run_reserve(w, name);
  else if (scene == "delete") printf("%d\n", tube_delete(name.c_str()));
  else if (scene == "churn" || scene == "endless") run_churn(w, scene == "endless");
  else if (scene == "press") run_press(w);
  else if (scene == "alloc") run_alloc(w);
  else if (scene == "queue") run_queue(w);
  else if (scene == "ids") run_ids(w);
  else return 2;
  return 0;
}

// A driver-API program that goes on with one attack until it is killed, one scene per argument:
// what bench/attacks runs beside a bystander. It knows nothing of Tube.
//
// A scene says "begun" on its standard output once it has gone through all of its attack, and then
// begins anew without pause. What is refused is part of the attack: only calls that must work end
// the program.
#include <fcntl.h>
#include <sys/mman.h>

#include "tests/programs/common.h"

namespace {

constexpr uint64_t kMiB = 1 << 20;

// `once` for ever; its number in the sequence makes what must be new each time.
template <typename Once>
[[noreturn]] void repeat(Once once) {
  for (uint64_t number = 0;; ++number) {
    once(number);
    if (number != 0) continue;
    printf("begun\n");
    fflush(stdout);
  }
}

// Single pages of a file, no two of them one mapping, registered by the thousand, then given back:
// the simulated GPU reads all mappings of its process for each, which keeps the bound on them out
// of reach of a few seconds. The program itself maps no more than one registration at a time, or
// finding its own mappings would be most of the work: what is registered stays mapped in the proxy.
void registrations() {
  Gpu gpu;
  constexpr size_t kPage = 4096, kPagesOfOne = 8, kMost = 512;
  constexpr size_t kRange = kPage * kPagesOfOne;
  const int file = memfd_create("registered", MFD_CLOEXEC);
  EXPECT(file >= 0 && ftruncate(file, 2 * kRange) == 0);
  void* reserved = mmap(nullptr, kMost * kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(reserved != MAP_FAILED);
  const auto range = [&](size_t number) { return static_cast<char*>(reserved) + number * kRange; };
  const auto take = [&](size_t number) {
    for (size_t page = 0; page < kPagesOfOne; ++page)
      EXPECT(mmap(range(number) + page * kPage, kPage, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED, file,
                  static_cast<off_t>(2 * page * kPage)) != MAP_FAILED);
    const bool taken = cuMemHostRegister(range(number), kRange, 0) == CUDA_SUCCESS;
    EXPECT(mmap(range(number), kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
           MAP_FAILED);
    return taken;
  };
  repeat([&](uint64_t) {
    size_t held = 0;
    while (held < kMost && take(held)) ++held;
    EXPECT(held == kMost);
    for (size_t i = 0; i < held; ++i) CU(cuMemHostUnregister(range(i)));
  });
}

// Pinned memory in pieces, all of it written, until the first refusal or `bytes`; then given back.
void pinned(uint64_t bytes) {
  Gpu gpu;
  constexpr uint64_t kPiece = 16 * kMiB;
  std::vector<void*> pieces;
  repeat([&](uint64_t) {
    void* at = nullptr;
    while (pieces.size() * kPiece < bytes && cuMemHostAlloc(&at, kPiece, 0) == CUDA_SUCCESS) {
      memset(at, 1, kPiece);
      pieces.push_back(at);
    }
    for (void* piece : pieces) CU(cuMemFreeHost(piece));
    pieces.clear();
  });
}

std::string kernel_text(const std::string& name, const std::string& body) {
  return ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry " + name +
         "(.param .u64 to)\n{\n.reg .u32 %r<3>;\n" + body + "ret;\n}\n";
}

// Text that is no program, other text each time.
void broken_images() {
  Gpu gpu;
  repeat([](uint64_t number) {
    const std::string text =
        kernel_text("none", "no.such.thing %r0, " + std::to_string(number) + ";\n");
    CUmodule module = nullptr;
    EXPECT(cuModuleLoadData(&module, text.c_str()) != CUDA_SUCCESS);
  });
}

// A kernel of a name that was never there, of 4,000 characters.
void kernel_names() {
  Gpu gpu;
  repeat([](uint64_t number) {
    const std::string name =
        "k" + std::to_string(getpid()) + "_" + std::to_string(number) + std::string(3980, 'x');
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CU(cuModuleLoadData(&module, kernel_text(name, "").c_str()));
    CU(cuModuleGetFunction(&function, module, name.c_str()));
    CU(cuModuleUnload(module));
  });
}

// Some ten thousand instructions, others each time: nothing that was compiled serves again.
void compilations() {
  Gpu gpu;
  repeat([](uint64_t number) {
    std::string body = "mov.u32 %r0, " + std::to_string(number % 1000000) + ";\n";
    for (int i = 0; i < 5000; ++i)
      body += "add.u32 %r1, %r0, " + std::to_string(i) + ";\nxor.b32 %r0, %r1, 3;\n";
    CUmodule module = nullptr;
    CU(cuModuleLoadData(&module, kernel_text("long_one", body).c_str()));
    CU(cuModuleUnload(module));
  });
}

// A file in `folder` that says to be a fatbin of `bytes` and is a hole behind its first page: the
// proxy has to bring its pages into being to read it.
void sparse_images(const std::string& folder, uint64_t bytes) {
  Gpu gpu;
  const struct {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t payload_bytes;
  } header = {0xBA55ED50, 1, 16, bytes - 16};
  const std::string path = folder + "/sparse";
  repeat([&](uint64_t) {
    unlink(path.c_str());  // of one that was killed
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    EXPECT(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0);
    EXPECT(write(file, &header, sizeof header) == sizeof header);
    void* image = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    EXPECT(image != MAP_FAILED);
    CUmodule module = nullptr;
    EXPECT(cuModuleLoadData(&module, image) != CUDA_SUCCESS);
    munmap(image, bytes);
    close(file);
  });
}

// Streams until the first refusal, work on each; then none.
void streams() {
  Gpu gpu;
  constexpr size_t kMost = 8192;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 7));
  std::vector<CUstream> all;
  repeat([&](uint64_t) {
    CUstream stream = nullptr;
    while (all.size() < kMost && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
      CU(cuMemsetD32Async(data.pointer, 7, 64, stream));
      all.push_back(stream);
    }
    EXPECT(all.size() > 1000);
    for (CUstream each : all) CU(cuStreamDestroy(each));
    all.clear();
  });
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc >= 2);
  const std::string scene = argv[1];
  if (scene == "registrations") registrations();
  else if (scene == "pinned" && argc == 3) pinned(strtoull(argv[2], nullptr, 0));
  else if (scene == "broken_images") broken_images();
  else if (scene == "kernel_names") kernel_names();
  else if (scene == "compilations") compilations();
  else if (scene == "sparse_images" && argc == 4)
    sparse_images(argv[2], strtoull(argv[3], nullptr, 0));
  else if (scene == "streams") streams();
  return 2;
}

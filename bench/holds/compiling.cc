// What a compile of PTX costs small requests of the same context, natively: a thread sends requests
// (4 KiB up, a kernel, 4 KiB down, waited for) while another one loads code, in each of the ways
// that a driver has for it.
//
//   bench/holds/compiling [MS]      of each way, a line; 1200, some 45 seconds altogether
//
// Each text is another one, so that no cache has it, but for the rows that say so.
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/client/common.h"
#include "bench/holds/new_text.h"

namespace {

using bench::now_ns;

int64_t row_ns = 1'200'000'000;
constexpr auto kPause = std::chrono::microseconds(300);

CUdevice device = 0;
CUcontext context = nullptr, other = nullptr;  // `other`: a second one of the same GPU

struct Times {
  std::vector<double> us;
  double at(double part) {
    if (us.empty()) return 0;
    std::sort(us.begin(), us.end());
    return us[std::min(us.size() - 1, size_t(part * double(us.size())))];
  }
  void add(int64_t begin_ns) { us.push_back(double(now_ns() - begin_ns) / 1e3); }
};

// Requests until told to end. `begun`: one has been answered.
void send_requests(const std::atomic<bool>& stop, std::atomic<bool>& begun, Times& times) {
  CU(cuCtxSetCurrent(context));
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr data = 0;
  std::vector<uint32_t> host(1024);
  CU(cuModuleLoadData(&module, bench::kPtx));
  CU(cuModuleGetFunction(&kernel, module, "count_up"));
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuMemAlloc(&data, 4096));
  uint32_t amount = 1;
  void* arguments[] = {&data, &amount};
  while (!stop) {
    const int64_t begin = now_ns();
    CU(cuMemcpyHtoDAsync(data, host.data(), 4096, stream));
    CU(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
    CU(cuMemcpyDtoHAsync(host.data(), data, 4096, stream));
    CU(cuStreamSynchronize(stream));
    times.add(begin);
    begun = true;
    begun.notify_one();
    std::this_thread::sleep_for(kPause);
  }
  CU(cuStreamDestroy(stream));
  CU(cuMemFree(data));
  CU(cuModuleUnload(module));
}

void row(const char* way, const std::function<void()>& step) {
  std::atomic<bool> stop{false}, begun{false};
  Times requests, steps;
  std::thread requester(send_requests, std::cref(stop), std::ref(begun), std::ref(requests));
  begun.wait(false);
  for (const int64_t end = now_ns() + row_ns; now_ns() < end;) {
    const int64_t begin = now_ns();
    step();
    steps.add(begin);
  }
  stop = true;
  requester.join();
  std::printf("%-46s %6zu %9.1f   %7zu %8.1f %8.1f %9.1f %9.1f\n", way, steps.us.size(),
              steps.at(0.5) / 1e3, requests.us.size(), requests.at(0.5), requests.at(0.9),
              requests.at(0.99), requests.at(1));
  std::fflush(stdout);
}

std::string linked(const std::string& ptx) {
  CUlinkState link = nullptr;
  void* code = nullptr;
  size_t bytes = 0;
  CU(cuLinkCreate(0, nullptr, nullptr, &link));
  CU(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(ptx.c_str()), ptx.size() + 1, "text",
                   0, nullptr, nullptr));
  CU(cuLinkComplete(link, &code, &bytes));
  std::string cubin(static_cast<const char*>(code), bytes);
  CU(cuLinkDestroy(link));
  return cubin;
}

// Text with an error at its end, each time another one.
std::string refused_text(int pairs) { return new_text(pairs) + "\n.visible nonsense\n"; }

void refused(CUresult error) {
  if (error == CUDA_ERROR_INVALID_PTX) return;
  std::fprintf(stderr, "the text was not refused: %d\n", error);
  std::exit(1);
}

void refuse_module(const std::string& text) {
  CUmodule module = nullptr;
  refused(cuModuleLoadData(&module, text.c_str()));
}

void refuse_library(const std::string& text, bool module_too) {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  const CUresult error =
      cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (error != CUDA_SUCCESS) return refused(error);  // a driver that compiles at once
  if (module_too) refused(cuLibraryGetModule(&module, library));
  CU(cuLibraryUnload(library));
}

void refuse_linked(const std::string& text) {
  CUlinkState link = nullptr;
  CU(cuLinkCreate(0, nullptr, nullptr, &link));
  refused(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(text.c_str()), text.size() + 1,
                        "text", 0, nullptr, nullptr));
  CU(cuLinkDestroy(link));
}

void load_module(const std::string& image) {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CU(cuModuleLoadData(&module, image.c_str()));
  CU(cuModuleGetFunction(&kernel, module, "plain"));
  CU(cuModuleUnload(module));
}

void load_library(const std::string& image, bool kernel_too) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  CU(cuLibraryLoadData(&library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  if (kernel_too) {
    CU(cuLibraryGetKernel(&kernel, library, "plain"));
    CU(cuKernelGetFunction(&function, kernel));
  }
  CU(cuLibraryUnload(library));
}

// So that the driver's cache has it, then as a module.
void load_both(const std::string& ptx) {
  load_library(ptx, false);
  load_module(ptx);
}

// A module, but the library's.
void load_its_module(const std::string& ptx) {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CU(cuLibraryLoadData(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLibraryGetModule(&module, library));
  CU(cuModuleGetFunction(&kernel, module, "plain"));
  CU(cuLibraryUnload(library));
}

void in_other(const std::function<void()>& step) {
  CU(cuCtxSetCurrent(other));
  step();
  CU(cuCtxSetCurrent(context));
}

void rows(int pairs) {
  const auto fresh = [pairs] { return new_text(pairs); };
  const std::string same = fresh(), code = linked(same);
  load_module(same);  // the driver's cache has it now
  std::printf("%d instructions, %zu bytes of machine code\n", 2 * pairs, code.size());
  row("nothing", [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  row("the text is made", [&] { (void)fresh(); });
  row("module of PTX", [&] { load_module(fresh()); });
  row("module of PTX that the cache has", [&] { load_module(same); });
  row("module of machine code", [&] { load_module(code); });
  row("library of PTX", [&] { load_library(fresh(), false); });
  row("library of PTX, and its kernel", [&] { load_library(fresh(), true); });
  row("library of machine code, and its kernel", [&] { load_library(code, true); });
  row("library of PTX, then a module of it", [&] { load_both(fresh()); });
  row("library of PTX, and its module", [&] { load_its_module(fresh()); });
  row("linker", [&] { (void)linked(fresh()); });
  row("module of refused PTX", [&] { refuse_module(refused_text(pairs)); });
  row("library of refused PTX", [&] { refuse_library(refused_text(pairs), false); });
  row("library of refused PTX, and its module", [&] { refuse_library(refused_text(pairs), true); });
  row("linker with refused PTX", [&] { refuse_linked(refused_text(pairs)); });
  if (other == nullptr) return;
  row("module of PTX in another context", [&] { in_other([&] { load_module(fresh()); }); });
  row("linker in another context", [&] { in_other([&] { (void)linked(fresh()); }); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) row_ns = std::atoll(argv[1]) * 1'000'000;
  context = bench::enter_first_gpu(&device);
  std::printf("%-46s %6s %9s   %7s %8s %8s %9s %9s\n", "beside", "times", "p50 ms", "requests",
              "p50 us", "p90", "p99", "most");
  rows(5000);
  rows(20);
  CU(cuCtxCreate(&other, nullptr, 0, device));
  CU(cuCtxSetCurrent(context));
  rows(5000);
  CU(cuCtxDestroy(other));
  CU(cuDevicePrimaryCtxRelease(device));
  return 0;
}

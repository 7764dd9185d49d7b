// Libraries, modules and kernels as the hook knows them.
//
// A kernel's parameter layout and attributes come with the reply that looked it up, so that
// launches, attribute queries and occupancy (memoised) need no message. The CUkernel of a kernel is
// its CUfunction with a bit more: nearly every call takes either for the other, as natively, and
// the bit is only looked at by those that do not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hook/objects/thread.h"
#include "protocol/device_info.h"
#include "protocol/known_kernel.h"

namespace tube::hook {

inline constexpr uint32_t kMaxParameterBytes = 32764;  // of a launch

struct Kernel;

// A library or a module.
struct Module {
  Slot* slot = nullptr;
  uint64_t id = 0;
  wire::LoadedAs kind = wire::LoadedAs::kLibrary;
  Context* context = nullptr;    // modules; libraries belong to none
  Lock lock;                     // rank 2: the members below
  Slot* module_alias = nullptr;  // cuLibraryGetModule
  std::unordered_map<std::string, Kernel*> kernels;
  std::vector<Slot*> doubles;  // of kernels that two threads looked up at once: nobody's, but the
                               // proxy knows them until the module ends
  std::vector<uint64_t> globals;  // addresses in the memory map
  // Kernels that the proxy described with the load's reply (protocol/known_kernel.h); not changed
  // afterwards.
  std::vector<std::byte> table;
  std::unordered_map<std::string_view, const wire::KnownKernel*> known;
  uint32_t known_on = ~0u;  // the proxy's ordinal of the device they are described on
};

// What a kernel is on one device.
struct KernelOn {
  static constexpr uint32_t kNowhere = ~0u;

  std::atomic<uint32_t> device{kNowhere};  // the proxy's ordinal; kNowhere: none, or not known
  std::atomic<int32_t> attributes[info::kFunctionAttributeCount] = {};
  int32_t attribute_results[info::kFunctionAttributeCount] = {};
  std::atomic<KernelOn*> next{nullptr};  // stays while the process lives
};

struct OccupancyAnswer {
  wire::OccupancyQuestion what;
  uint32_t flags;
  uint64_t a, b, c;
  uint64_t x, y;
  uint32_t device = KernelOn::kNowhere;  // that it was asked for
};

// The state that the launch interface of CUDA 3 keeps in a function (calls/old/launch.cc).
struct OldLaunch {
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  std::vector<std::byte> parameters;
};

struct Kernel {
  Slot* slot = nullptr;
  uint64_t id = 0;
  Module* module = nullptr;
  std::string name;
  std::vector<wire::KernelParameter> layout;
  uint32_t parameter_bytes = 0;
  uint32_t writes = 0;  // wire::kKernelPrints, wire::kKernelAsserts: what its image can do
  KernelOn on;          // where it was looked up first, and the others (kernel_on)
  Lock lock;            // rank 2: the members below, and which `on` is of no device
  std::vector<OccupancyAnswer> occupancy;
  OldLaunch old_launch;
};

Module* find_module(const void* handle);  // a CUmodule, alias of a library or not
Module* find_library(const void* handle);
// Accepts CUfunction and CUkernel.
Kernel* find_kernel(const void* handle);
CUresult get_kernel(Module* module, const char* name, Kernel** kernel);
// What the kernel is on the context's device. The first time on another device than it was looked
// up for the proxy is asked: no lock held.
CUresult kernel_on(Kernel* k, Context* context, KernelOn** on);
inline void* kernel_handle(const Kernel* k) { return objects().handle_of(k->slot); }  // CUfunction
// Below what tells handles apart (objects.h).
inline constexpr uintptr_t kLibraryKernelBit = 8;
inline CUkernel library_kernel_handle(const Kernel* k) {
  return reinterpret_cast<CUkernel>(reinterpret_cast<uintptr_t>(kernel_handle(k)) |
                                    kLibraryKernelBit);
}
inline bool names_library_kernel(const void* handle) {
  return (reinterpret_cast<uintptr_t>(handle) & kLibraryKernelBit) != 0;
}
// The modules of a context that was reset or destroyed.
void forget_modules(Context* context, Retired* gone);

// JIT options on their way to the proxy and back (calls/module.cc, calls/link.cc).
class JitOptions {
 public:
  // False: an option that points to more than a log buffer.
  bool parse(unsigned count, const CUjit_option* options, void** values);
  // Log texts and returned values into the program's buffers and arrays.
  void give_back(std::span<const std::byte> info_log, std::span<const std::byte> error_log,
                 std::span<const std::byte> values);
  uint32_t count() const { return static_cast<uint32_t>(ids_.size()); }
  const uint32_t* ids() const { return ids_.data(); }
  const uint64_t* values() const { return sent_.data(); }
  uint32_t info_log_bytes() const { return info_bytes_; }
  uint32_t error_log_bytes() const { return error_bytes_; }

 private:
  std::vector<uint32_t> ids_;
  std::vector<uint64_t> sent_;
  void** values_ = nullptr;
  char* info_ = nullptr;
  char* error_ = nullptr;
  uint32_t info_bytes_ = 0;
  uint32_t error_bytes_ = 0;
};

}  // namespace tube::hook

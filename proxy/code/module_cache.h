// Modules loaded with the driver, and which of them serve several functions at once.
//
// Loading a module, loading one of its kernels and unloading it wait for all work of the GPU's
// context, of every function (measured, docs/decisions), and cost milliseconds. So an image that
// keeps no state (image/state.h) is loaded once: the next function that brings the same bytes gets
// the same module, with the kernels that others looked up before. When its last user leaves it
// stays, for the next one, up to limits::kIdleModuleBytes of images. Nobody can tell:
//
//   - a program that loads an image twice gets two modules, as natively: a module has each session
//   at most once
//   - what a look-up answers is what it answered first, before anybody changed an attribute
//   - the limit of dynamic shared memory only grows here; each session's own value is checked
//   before the driver sees a launch
//   - a preferred carve-out or cache configuration is a hint and set for all
//   - a session that changes another attribute, asks for a variable, or exceeds its own limit where
//   a
//     neighbour raised the module's, gets a module of its own at that moment (take_own_module)
//
// Kernels that functions looked up in the same image in earlier runs are loaded with it, in one
// context-wide call (kernel_record.h).
//
// A module with state, or loaded with JIT options, belongs to one session. It is not unloaded when
// it is given back but when no function is left or too many wait, because others would stand still
// meanwhile.
//
// Loading, unloading and looking up a kernel that is not loaded yet may wait: for the streams that
// wait for other programs (ten seconds), then as long as the driver does (context_gate.h). They do
// so without any lock but a slot's `loading` (rank 25, behind the gate), which keeps two on one GPU
// from loading the same image twice. Two on different GPUs may: neither stands for the other
// (docs/decisions/0009). `mutex_` (rank 33) guards the tables, a module's own (rank 34) its
// kernels; neither is held over a driver call that waits. Any thread; where a GPU is named, its
// context is current.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/cuda_api.h"
#include "protocol/device_info.h"
#include "protocol/wire.gen.h"
#include "proxy/code/compile_ahead.h"
#include "proxy/code/image_store.h"
#include "proxy/code/kernel_record.h"

namespace tube::proxy {

struct Driver;
class Gpus;
class MemoryEvents;

using wire::KernelParameter;

static_assert(info::kMaxDevices <= 64);
constexpr uint64_t bit_of(uint32_t gpu) { return uint64_t{1} << gpu; }

// A kernel as the driver described it when it was first looked up.
struct LoadedKernel {
  struct OnGpu {  // with its attributes, as they were before anybody changed one
    bool loaded = false;
    CUfunction function =
        nullptr;  // a library's, as the GPU's shared context names it; nullptr: not seen there
    wire::KernelAttribute attributes[info::kFunctionAttributeCount] = {};
    int32_t dynamic_limit = 0;  // the driver's value now
  };
  CUfunction function = nullptr;  // a library's: a CUkernel cast
  std::shared_ptr<const std::string> name;
  std::vector<KernelParameter> layout;
  uint32_t parameter_bytes = 0;
  uint64_t lookups = 0;
  std::map<uint32_t, OnGpu> on;  // by GPU; under the module's lock, see LoadedModule::seen
};

class LoadedModule {
 public:
  LoadedModule(std::shared_ptr<const Image> image, bool library, uint32_t gpu, bool shared,
               uint64_t raw, uint64_t code_bytes = 0, const Hash128& content = {},
               KernelRecord* record = nullptr);
  ~LoadedModule();

  uint64_t raw() const { return raw_; }
  bool library() const { return library_; }
  bool shared() const { return shared_; }
  const std::shared_ptr<const Image>& image() const { return image_; }
  // Of each GPU that it is on (ImageFacts).
  uint64_t code_bytes() const { return code_bytes_; }

  // Looks a kernel up, and loads it into the current context, which is `gpu`'s, unless that has
  // happened. `fresh`: the driver was asked, and may have waited. The kernel lives as long as the
  // module.
  CUresult kernel(const Driver& driver, const Gpus& gpus, uint32_t gpu, const std::string& name,
                  LoadedKernel** out, bool* fresh);
  // The kernels that functions wanted of this image before, in one context-wide call and as many as
  // fit into its time (policies/early_kernels.h): how many.
  uint64_t load_early(const Driver& driver, const Gpus& gpus, uint32_t gpu);
  // The kernels known on `gpu`, as the table of protocol/known_kernel.h, the most wanted first, up
  // to `room` bytes.
  std::vector<std::byte> table(uint32_t gpu, std::span<const int> capabilities, size_t room);
  // Whether kernel() would not ask the driver. Never waits, nor do the next three.
  bool has(const std::string& name, uint32_t gpu) {
    bool loaded = false;
    return find(name, gpu, &loaded) != nullptr && loaded;
  }
  // What is known of a kernel on `gpu`; nothing: nobody has asked there.
  std::optional<LoadedKernel::OnGpu> seen(const LoadedKernel& kernel, uint32_t gpu);
  // A library comes into `gpu`'s context by other ways than these.
  void comes_to(uint32_t gpu) { loaded_on_ |= bit_of(gpu); }
  // Raises the driver's limit of dynamic shared memory if it is below `bytes`.
  CUresult raise_limit(const Driver& driver, LoadedKernel& kernel, uint32_t gpu, CUdevice device,
                       int32_t bytes);
  int32_t limit(const LoadedKernel& kernel, uint32_t gpu);
  // A question to the driver about a variable of a library, which comes into a context with the
  // first one; the driver then waits until that context is idle: context-wide (context_gate.h).
  // In other contexts than the GPU's shared one every question may be the first.
  // variables_come(): whether it may be the first in the current context.
  bool variables_come(const Driver& driver, const Gpus& gpus, uint32_t gpu) const;
  CUresult ask_variable(const Driver& driver, const Gpus& gpus, uint32_t gpu,
                        const std::function<CUresult()>& question);

 private:
  friend class ModuleCache;
  CUresult look_up(const Driver& driver, const std::string& name, LoadedKernel* kernel) const;
  CUresult read_layout(const Driver& driver, LoadedKernel* kernel) const;
  // `found`: by name, where *kernel_out is nullptr.
  CUresult first_use(const Driver& driver, const Gpus& gpus, uint32_t gpu, const std::string& name,
                     LoadedKernel& found, LoadedKernel** kernel_out);
  CUresult load_on(const Driver& driver, const Gpus& gpus, LoadedKernel& kernel, uint32_t gpu);
  LoadedKernel* find(const std::string& name, uint32_t gpu, bool* loaded);
  LoadedKernel::OnGpu describe(const Driver& driver, const LoadedKernel& kernel,
                               CUdevice device) const;
  void note(LoadedKernel& kernel, uint32_t gpu, const LoadedKernel::OnGpu& found);
  // The GPUs in whose contexts it is, as bits.
  uint64_t gpus() const { return library_ ? loaded_on_.load() : bit_of(gpu_); }

  const std::shared_ptr<const Image> image_;  // the driver may read it until the unload
  const bool library_;
  const uint32_t gpu_;  // a module's; a library is of no GPU
  const bool shared_;
  const uint64_t raw_;  // CUlibrary or CUmodule
  const uint64_t code_bytes_;
  const Hash128 content_;
  KernelRecord* const record_;
  std::mutex mutex_;  // rank 34: kernels_
  std::array<std::mutex, info::kMaxDevices>
      raising_;  // rank 26: by GPU, held while the driver raises a limit there
  std::map<std::string, LoadedKernel> kernels_;
  std::atomic<uint64_t> loaded_on_{
      0};  // a library: bit per GPU in whose context something of it may be
  std::atomic<uint64_t> in_context_{
      0};                        // a library: bit per GPU in whose shared context its variables are
  std::vector<uint64_t> users_;  // sessions; under the cache's mutex_
  uint64_t last_used_ = 0;
};

class ModuleCache {
 public:
  // `share` false: every session loads for itself, and gives back to the driver at once. `surplus`:
  // has unload_surplus() called, by who may stand in the driver for any GPU, and waits for that as
  // long as it is told at most; true: it was done meanwhile.
  using Surplus = std::function<bool(uint32_t wait_ms)>;
  ModuleCache(const Driver& driver, Gpus& gpus, bool share, Surplus surplus = {});
  ~ModuleCache();
  ModuleCache(const ModuleCache&) = delete;
  ModuleCache& operator=(const ModuleCache&) = delete;

  // The driver's load of an image in the current context: what is asked for when nothing is there.
  // It may load another image in the place of `*image`, which is then the module's.
  using Load = std::function<CUresult(std::shared_ptr<const Image>* image, uint64_t* raw)>;
  struct Wanted {
    uint64_t session = 0;
    bool library = false;
    uint32_t gpu = 0;
    bool may_share = false;  // an ordinary load in the GPU's shared context
  };
  // `ahead`, if any: what is done first where the driver is asked, outside the gate and without a
  // lock; an error of its is the answer. `fresh`: the driver was asked, and may have waited. Any
  // session's thread.
  using Ahead = std::function<CUresult()>;
  CUresult get(const Wanted& wanted, std::shared_ptr<const Image> image, const Ahead& ahead,
               const Load& load, std::shared_ptr<LoadedModule>* out, bool* fresh);
  // The session has no more use of it. Unloads, and waits, when too many are left: what is on the
  // current GPU alone. On others the driver may stand behind a kernel that waits for this session's
  // program (docs/decisions/0009); those are left to unload_surplus(), and so in get().
  void give_back(uint64_t session, std::shared_ptr<LoadedModule>&& module);
  // Unloads what belonged to sessions that are gone. When no function is there, or somebody may
  // wait (the janitor's thread).
  void unload_retired();
  // Unloads all that nobody uses.
  void unload_idle();
  // Of both, what is too much, or all, if room is wanted (the janitor's thread).
  void unload_surplus();
  // For the GPU's memory, when that has run out: all that nobody uses. What is on other GPUs as
  // well is left to the janitor, who has a second. False: there was nothing, or some stream waits
  // for its program. An allocation never waits for such a stream. The GPU's context is current.
  bool make_room(uint32_t gpu);

  struct Counts {
    uint64_t loaded, shared, idle, retired, idle_bytes, kernels_early;
  };
  Counts counts() const;
  // For what is done ahead.
  CompileAhead& compiler() { return compiler_; }
  // Whose the code on a GPU is; estimates (code_use.cc).
  struct Use {
    std::map<uint64_t, uint64_t> by_session;  // bytes; of a shared module its share
    uint64_t total_bytes = 0;
    uint64_t kept_bytes = 0;  // of these, what nobody uses
  };
  Use use(uint32_t gpu) const;
  // Where unloads are noted. Before any session; outlives this.
  void note_to(MemoryEvents* events) { events_ = events; }
  // What is known of earlier runs. Likewise.
  void use_record(KernelRecord* record) { record_ = record; }

 private:
  struct Slot {
    std::array<std::mutex, info::kMaxDevices> loading;  // rank 25: by GPU
    std::vector<std::shared_ptr<LoadedModule>> modules;
  };
  using Key = std::tuple<const Image*, bool, uint32_t>;

  using Modules = std::vector<std::shared_ptr<LoadedModule>>;
  static constexpr uint64_t kAnywhere = ~uint64_t{0};

  std::shared_ptr<LoadedModule> pick(Slot& slot, uint64_t session);
  // What a session's thread on this GPU may unload: modules that are nowhere else.
  uint64_t only_on(uint32_t gpu) const;
  uint64_t only_here() const;
  bool too_many_retired() const;
  // Take what is on no other GPUs than `gpus`. True: more than that should go.
  bool take_idle(uint64_t above_bytes, uint64_t gpus, Modules* out);
  bool take_retired(size_t most, uint64_t gpus, Modules* out);
  void has_surplus() const {
    if (surplus_) (void)surplus_(0);
  }
  void load_early(LoadedModule& module, uint32_t gpu);
  CUresult load_shared(const Wanted& wanted, Slot& slot, std::shared_ptr<const Image> image,
                       const Load& load, std::shared_ptr<LoadedModule>* out, bool* fresh);
  // What is in no context: in the current one. `why`: for the list of events.
  void unload(Modules& modules, const char* why = "nobody uses it");
  void owns(uint64_t session, const std::shared_ptr<LoadedModule>& module);

  const Driver& driver_;
  Gpus& gpus_;
  const bool share_;
  const Surplus surplus_;
  CompileAhead compiler_;
  MemoryEvents* events_ = nullptr;
  KernelRecord* record_ = nullptr;
  mutable std::mutex mutex_;  // rank 33: the members below
  std::map<Key, std::shared_ptr<Slot>> slots_;
  std::vector<std::pair<uint64_t, std::weak_ptr<LoadedModule>>> own_;  // by session
  std::list<std::shared_ptr<LoadedModule>> retired_;
  uint64_t retired_bytes_ = 0;
  bool room_wanted_ = false;
  uint64_t loaded_ = 0;
  uint64_t shared_ = 0;
  std::atomic<uint64_t> kernels_early_{0};
  uint64_t clock_ = 0;
};

}  // namespace tube::proxy

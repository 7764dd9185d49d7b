#include "proxy/code/module_cache.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "policies/early_kernels.h"
#include "protocol/driver_table.gen.h"
#include "protocol/known_kernel.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/contained.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_events.h"

namespace tube::proxy {

namespace {

constexpr uint32_t kNoGpu = 0xffffffffu;  // of libraries
constexpr size_t kMostIdle =
    1024;  // modules; small images take more of the GPU than their bytes say
constexpr uint32_t kRoomMs = 1000;  // an allocation that would fail waits for the janitor

CUkernel as_kernel(const LoadedKernel& kernel) {
  return reinterpret_cast<CUkernel>(kernel.function);
}

}  // namespace

// ---- a module ----

LoadedModule::LoadedModule(std::shared_ptr<const Image> image, bool library, uint32_t gpu,
                           bool shared, uint64_t raw, uint64_t code_bytes, const Hash128& content,
                           KernelRecord* record)
    : image_(std::move(image)),
      library_(library),
      gpu_(gpu),
      shared_(shared),
      raw_(raw),
      code_bytes_(code_bytes),
      content_(content),
      record_(content == Hash128{} ? nullptr : record) {}
LoadedModule::~LoadedModule() = default;

namespace {

// The bit of a GPU whose shared context is current; 0: another one is.
uint64_t shared_context_bit(const Driver& driver, const Gpus& gpus, uint32_t gpu) {
  CUcontext current = nullptr;
  const bool usual =
      driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == gpus[gpu].context;
  return usual ? bit_of(gpu) : 0;
}

}  // namespace

bool LoadedModule::variables_come(const Driver& driver, const Gpus& gpus, uint32_t gpu) const {
  const uint64_t bit = shared_context_bit(driver, gpus, gpu);
  return (in_context_.load(std::memory_order_acquire) & bit) == 0;
}

CUresult LoadedModule::ask_variable(const Driver& driver, const Gpus& gpus, uint32_t gpu,
                                    const std::function<CUresult()>& question) {
  const uint64_t bit = shared_context_bit(driver, gpus, gpu);
  loaded_on_ |= bit_of(gpu);
  if ((in_context_.load(std::memory_order_acquire) & bit) != 0) return question();
  const CUresult error =
      gpus.gate().context_wide_deferring(this_caller(), "cuLibraryGetGlobal", question);
  if (error == CUDA_SUCCESS) in_context_.fetch_or(bit, std::memory_order_release);
  return error;
}

// By its name alone. For a module's kernel this is context-wide (context_gate.h), a library's is
// loaded later.
CUresult LoadedModule::look_up(const Driver& driver, const std::string& name,
                               LoadedKernel* kernel) const {
  if (!library_)
    return driver.cuModuleGetFunction(&kernel->function, reinterpret_cast<CUmodule>(raw_),
                                      name.c_str());
  CUkernel found = nullptr;
  const CUresult error =
      driver.cuLibraryGetKernel(&found, reinterpret_cast<CUlibrary>(raw_), name.c_str());
  kernel->function = reinterpret_cast<CUfunction>(found);
  return error;
}

// Asked one by one until the driver says that there is no such parameter.
CUresult LoadedModule::read_layout(const Driver& driver, LoadedKernel* kernel) const {
  for (size_t index = 0;; ++index) {
    size_t offset = 0, size = 0;
    const CUresult error =
        library_ ? driver.cuKernelGetParamInfo(as_kernel(*kernel), index, &offset, &size)
                 : driver.cuFuncGetParamInfo(kernel->function, index, &offset, &size);
    if (error == CUDA_ERROR_INVALID_VALUE) return CUDA_SUCCESS;
    if (error != CUDA_SUCCESS) return error;
    if (index >= limits::kParameters) return CUDA_ERROR_NOT_SUPPORTED;
    kernel->layout.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(size)});
    kernel->parameter_bytes =
        std::max(kernel->parameter_bytes, static_cast<uint32_t>(offset + size));
  }
}

std::optional<LoadedKernel::OnGpu> LoadedModule::seen(const LoadedKernel& kernel, uint32_t gpu) {
  std::lock_guard lock(mutex_);
  const auto on = kernel.on.find(gpu);
  return on == kernel.on.end() ? std::nullopt : std::optional(on->second);
}

// Of two that come with it at once the first one's is kept: nobody can have changed an attribute
// before.
void LoadedModule::note(LoadedKernel& kernel, uint32_t gpu, const LoadedKernel::OnGpu& found) {
  std::lock_guard lock(mutex_);
  const auto [on, first] = kernel.on.try_emplace(gpu, found);
  if (first) return;
  on->second.loaded |= found.loaded;
  if (on->second.function == nullptr) on->second.function = found.function;
}

LoadedKernel::OnGpu LoadedModule::describe(const Driver& driver, const LoadedKernel& kernel,
                                           CUdevice device) const {
  LoadedKernel::OnGpu on;
  for (uint32_t id = 0; id < info::kFunctionAttributeCount; ++id) {
    const auto attribute = static_cast<CUfunction_attribute>(id);
    auto& [result, value] = on.attributes[id];
    result = library_ ? driver.cuKernelGetAttribute(&value, attribute, as_kernel(kernel), device)
                      : driver.cuFuncGetAttribute(&value, attribute, kernel.function);
  }
  on.dynamic_limit = on.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES].value;
  return on;
}

// Without the lock: the driver may wait for the context of all, and others ask for this module's
// limits meanwhile.
CUresult LoadedModule::load_on(const Driver& driver, const Gpus& gpus, LoadedKernel& kernel,
                               uint32_t gpu) {
  CUfunction function = nullptr;
  if (library_) {
    if (CUresult error = driver.cuKernelGetFunction(&function, as_kernel(kernel));
        error != CUDA_SUCCESS)
      return error;
    CUcontext context = nullptr;
    if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context != gpus[gpu].context)
      function = nullptr;  // a green context's
  }
  LoadedKernel::OnGpu on = describe(driver, kernel, gpus[gpu].device);
  on.loaded = true;
  on.function = function;
  note(kernel, gpu, on);
  return CUDA_SUCCESS;
}

LoadedKernel* LoadedModule::find(const std::string& name, uint32_t gpu, bool* loaded) {
  std::lock_guard lock(mutex_);
  const auto found = kernels_.find(name);
  if (found == kernels_.end()) return nullptr;
  const auto on = found->second.on.find(gpu);
  *loaded = on != found->second.on.end() && on->second.loaded;
  return &found->second;
}

CUresult LoadedModule::kernel(const Driver& driver, const Gpus& gpus, uint32_t gpu,
                              const std::string& name, LoadedKernel** out, bool* fresh) {
  bool loaded = false;
  *out = find(name, gpu, &loaded);
  *fresh = !loaded;
  if (!loaded) {
    loaded_on_ |= bit_of(gpu);
    LoadedKernel found;
    if (*out == nullptr) {
      if (CUresult error = look_up(driver, name, &found); error != CUDA_SUCCESS) return error;
    }
    const auto first = [&] { return first_use(driver, gpus, gpu, name, found, out); };
    const CUresult error =
        library_ ? gpus.gate().context_wide(this_caller(), "the look-up of a kernel", first)
                 : first();
    if (error != CUDA_SUCCESS) return error;
  }
  {
    std::lock_guard lock(mutex_);
    if ((*out)->lookups++ != 0) return CUDA_SUCCESS;
  }
  if (record_ != nullptr)
    (void)contained("the record of kernels", [&] { record_->wanted(content_, name); });
  return CUDA_SUCCESS;
}

// One that fails is no loss: whoever asks for it is told.
uint64_t LoadedModule::load_early(const Driver& driver, const Gpus& gpus, uint32_t gpu) {
  if (record_ == nullptr) return 0;
  const std::vector<std::string> names = record_->begin_load(content_);
  if (names.empty()) return 0;
  uint64_t count = 0;
  (void)gpus.gate().context_wide(this_caller(), "the load of kernels", [&] {
    const uint64_t end = now_ns() + policies::kEarlyNs;
    for (const std::string& name : names) {
      if (now_ns() > end) break;
      LoadedKernel found;
      LoadedKernel* kernel = nullptr;
      loaded_on_ |= bit_of(gpu);
      if (look_up(driver, name, &found) != CUDA_SUCCESS) continue;
      if (first_use(driver, gpus, gpu, name, found, &kernel) == CUDA_SUCCESS) ++count;
    }
    return CUDA_SUCCESS;
  });
  return count;
}

// Whatever is asked first about a kernel of a library makes the driver load it into the context:
// its layout as well as its function.
CUresult LoadedModule::first_use(const Driver& driver, const Gpus& gpus, uint32_t gpu,
                                 const std::string& name, LoadedKernel& found,
                                 LoadedKernel** kernel_out) {
  if (*kernel_out == nullptr) {
    if (CUresult error = read_layout(driver, &found); error != CUDA_SUCCESS) return error;
    found.name = std::make_shared<const std::string>(name);
    std::lock_guard lock(mutex_);
    *kernel_out = &kernels_.try_emplace(name, std::move(found)).first->second;
  }
  return load_on(driver, gpus, **kernel_out, gpu);
}

std::vector<std::byte> LoadedModule::table(uint32_t gpu, std::span<const int> capabilities,
                                           size_t room) {
  std::lock_guard lock(mutex_);
  std::vector<const LoadedKernel*> known;
  for (const auto& [name, kernel] : kernels_) {
    if (auto on = kernel.on.find(gpu); on != kernel.on.end() && on->second.loaded)
      known.push_back(&kernel);
  }
  std::stable_sort(known.begin(), known.end(), [](const LoadedKernel* a, const LoadedKernel* b) {
    return a->lookups > b->lookups;
  });
  std::vector<std::byte> bytes;
  for (const LoadedKernel* kernel : known) {
    const size_t layout_bytes = kernel->layout.size() * sizeof(KernelParameter);
    wire::KnownKernel entry{};
    entry.name_bytes = static_cast<uint32_t>(kernel->name->size());
    entry.parameter_count = static_cast<uint32_t>(kernel->layout.size());
    entry.parameter_bytes = kernel->parameter_bytes;
    entry.writes = image_->facts(capabilities).writes(*kernel->name);
    entry.entry_bytes =
        static_cast<uint32_t>((sizeof(entry) + layout_bytes + entry.name_bytes + 7) & ~size_t{7});
    std::memcpy(entry.attributes, kernel->on.at(gpu).attributes, sizeof(entry.attributes));
    if (entry.entry_bytes > room - bytes.size()) continue;
    const size_t at = bytes.size();
    bytes.resize(at + entry.entry_bytes);
    std::memcpy(bytes.data() + at, &entry, sizeof(entry));
    if (layout_bytes != 0)
      std::memcpy(bytes.data() + at + sizeof(entry), kernel->layout.data(), layout_bytes);
    std::memcpy(bytes.data() + at + sizeof(entry) + layout_bytes, kernel->name->data(),
                entry.name_bytes);
  }
  return bytes;
}

CUresult LoadedModule::raise_limit(const Driver& driver, LoadedKernel& kernel, uint32_t gpu,
                                   CUdevice device, int32_t bytes) {
  constexpr auto kLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  if (bytes < 0) return CUDA_ERROR_INVALID_VALUE;
  if (!seen(kernel, gpu).has_value())
    note(kernel, gpu, describe(driver, kernel, device));  // what others shall see is noted first
  // One lock for each GPU: raising a limit on another GPU does not stand behind this.
  std::lock_guard raising(raising_[gpu]);
  if (bytes <= limit(kernel, gpu)) return CUDA_SUCCESS;
  const CUresult error = library_
                             ? driver.cuKernelSetAttribute(kLimit, bytes, as_kernel(kernel), device)
                             : driver.cuFuncSetAttribute(kernel.function, kLimit, bytes);
  if (error != CUDA_SUCCESS) return error;
  std::lock_guard lock(mutex_);
  kernel.on.at(gpu).dynamic_limit = bytes;
  return error;
}

int32_t LoadedModule::limit(const LoadedKernel& kernel, uint32_t gpu) {
  const auto on = seen(kernel, gpu);
  return on.has_value() ? on->dynamic_limit : 0;
}

// ---- all of them ----

ModuleCache::ModuleCache(const Driver& driver, Gpus& gpus, bool share, Surplus surplus)
    : driver_(driver),
      gpus_(gpus),
      share_(share),
      surplus_(std::move(surplus)),
      compiler_(gpus.gate()) {}
ModuleCache::~ModuleCache() {
  unload_retired();
  unload_idle();
}

// mutex_ is held.
std::shared_ptr<LoadedModule> ModuleCache::pick(Slot& slot, uint64_t session) {
  for (const auto& module : slot.modules) {
    if (std::find(module->users_.begin(), module->users_.end(), session) != module->users_.end())
      continue;
    module->users_.push_back(session);
    ++shared_;
    return module;
  }
  return nullptr;
}

CUresult ModuleCache::get(const Wanted& wanted, std::shared_ptr<const Image> image,
                          const Ahead& ahead, const Load& load, std::shared_ptr<LoadedModule>* out,
                          bool* fresh) {
  *fresh = true;
  const ImageFacts& facts = image->facts(gpus_.capabilities());
  const uint64_t code_bytes = facts.code_bytes;
  const Hash128 content = image->content();
  const bool shareable = share_ && wanted.may_share && facts.stateless;
  if (!shareable) {
    uint64_t raw = 0;
    CUresult error = ahead ? ahead() : CUDA_SUCCESS;
    if (error == CUDA_SUCCESS) error = load(&image, &raw);
    if (error != CUDA_SUCCESS) return error;
    *out = std::make_shared<LoadedModule>(std::move(image), wanted.library, wanted.gpu, false, raw,
                                          code_bytes, content, record_);
    load_early(**out, wanted.gpu);
    std::lock_guard lock(mutex_);
    ++loaded_;
    owns(wanted.session, *out);
    return CUDA_SUCCESS;
  }
  std::shared_ptr<Slot> slot;
  Modules old;
  bool surplus = false;
  {
    std::lock_guard lock(mutex_);
    const Key key{image.get(), wanted.library, wanted.library ? kNoGpu : wanted.gpu};
    auto place = slots_.find(key);
    if (place == slots_.end()) place = slots_.emplace(key, std::make_shared<Slot>()).first;
    slot = place->second;
    *out = pick(*slot, wanted.session);
    *fresh = *out == nullptr;
    if (!*fresh) return CUDA_SUCCESS;
    surplus = take_idle(limits::kIdleModuleBytes, only_on(wanted.gpu), &old);
  }
  if (surplus) has_surplus();
  unload(old);
  if (CUresult error = ahead ? ahead() : CUDA_SUCCESS; error != CUDA_SUCCESS) return error;
  // The gate before the lock: a session that stands there may not hold up another one that loads
  // the same image.
  return gpus_.gate().context_wide(this_caller(), "the load of an image", [&] {
    return load_shared(wanted, *slot, image, load, out, fresh);
  });
}

// The image is there, whatever becomes of this.
void ModuleCache::load_early(LoadedModule& module, uint32_t gpu) {
  (void)contained("the load of kernels", [&] {
    kernels_early_.fetch_add(module.load_early(driver_, gpus_, gpu), std::memory_order_relaxed);
  });
}

CUresult ModuleCache::load_shared(const Wanted& wanted, Slot& slot,
                                  std::shared_ptr<const Image> image, const Load& load,
                                  std::shared_ptr<LoadedModule>* out, bool* fresh) {
  std::lock_guard loading(slot.loading[wanted.gpu]);
  {
    std::lock_guard lock(mutex_);
    *out = pick(slot, wanted.session);  // somebody has been faster
    *fresh = *out == nullptr;
    if (!*fresh) return CUDA_SUCCESS;
  }
  uint64_t raw = 0;
  const Hash128 content = image->content();
  if (CUresult error = load(&image, &raw); error != CUDA_SUCCESS) return error;
  const uint64_t code_bytes = image->facts(gpus_.capabilities()).code_bytes;
  auto module = std::make_shared<LoadedModule>(std::move(image), wanted.library, wanted.gpu, true,
                                               raw, code_bytes, content, record_);
  load_early(*module, wanted.gpu);
  module->users_.push_back(wanted.session);
  std::lock_guard lock(mutex_);
  ++loaded_;
  slot.modules.push_back(module);
  *out = std::move(module);
  return CUDA_SUCCESS;
}

void ModuleCache::give_back(uint64_t session, std::shared_ptr<LoadedModule>&& module) {
  const uint64_t here = only_here();
  Modules old;
  bool surplus = false;
  {
    std::lock_guard lock(mutex_);
    if (module->shared()) {
      std::erase(module->users_, session);
      module->last_used_ = ++clock_;
      module.reset();
      return;
    }
    retired_.push_back(module);
    retired_bytes_ += module->image()->size();
    std::erase_if(own_, [&](const auto& entry) { return entry.second.lock() == module; });
    module.reset();
    // Half of them at once, so that the next ones wait for nothing again.
    surplus = too_many_retired() && take_retired((retired_.size() + 1) / 2, here, &old) &&
              too_many_retired();
  }
  if (surplus) has_surplus();
  unload(old);
}

uint64_t ModuleCache::only_on(uint32_t gpu) const {
  return gpus_.count() <= 1 ? kAnywhere : bit_of(gpu);
}

uint64_t ModuleCache::only_here() const {
  if (gpus_.count() <= 1) return kAnywhere;
  CUdevice device = 0;
  if (driver_.cuCtxGetDevice(&device) != CUDA_SUCCESS) return bit_of(0);
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) {
    if (gpus_[gpu].device == device) return bit_of(gpu);
  }
  return bit_of(0);
}

// mutex_ is held by these three.
bool ModuleCache::too_many_retired() const {
  return (!share_ && !retired_.empty()) || retired_bytes_ > limits::kRetiredModuleBytes ||
         retired_.size() > limits::kRetiredModules;
}

// The oldest first.
bool ModuleCache::take_retired(size_t most, uint64_t gpus, Modules* out) {
  bool elsewhere = false;
  for (auto it = retired_.begin(); it != retired_.end() && most != 0;) {
    if (((*it)->gpus() & ~gpus) != 0) {
      elsewhere = true;
      ++it;
      continue;
    }
    retired_bytes_ -= (*it)->image()->size();
    out->push_back(std::move(*it));
    it = retired_.erase(it);
    --most;
  }
  return elsewhere;
}

// The least recently used first, until at most `above_bytes` of idle images are left, and not more
// than kMostIdle.
bool ModuleCache::take_idle(uint64_t above_bytes, uint64_t gpus, Modules* out) {
  // A slot that somebody is about to fill is held by him.
  std::erase_if(slots_, [](const auto& entry) {
    return entry.second->modules.empty() && entry.second.use_count() == 1;
  });
  std::vector<std::pair<uint64_t, Slot*>> idle;
  uint64_t bytes = 0;
  for (auto& [key, slot] : slots_) {
    for (const auto& module : slot->modules) {
      if (!module->users_.empty()) continue;
      bytes += module->image()->size();
      idle.emplace_back(module->last_used_, slot.get());
    }
  }
  size_t left = idle.size();
  const auto too_many = [&] { return bytes > above_bytes || left > kMostIdle; };
  if (!too_many()) return false;
  std::sort(idle.begin(), idle.end());
  for (const auto& [when, slot] : idle) {
    if (!too_many()) break;
    const auto found =
        std::find_if(slot->modules.begin(), slot->modules.end(), [when = when](const auto& module) {
          return module->users_.empty() && module->last_used_ == when;
        });
    if (((*found)->gpus() & ~gpus) != 0) continue;
    --left;
    bytes -= (*found)->image()->size();
    out->push_back(std::move(*found));
    slot->modules.erase(found);
  }
  return too_many();
}

// In the context of a GPU that the module is on, whatever the thread's is; one context-wide call
// for all of a GPU's.
void ModuleCache::unload(Modules& modules, const char* why) {
  const uint64_t here = only_here();
  const auto home = [here](const LoadedModule& module) {
    return std::countr_zero(module.gpus() != 0 ? module.gpus() : here);
  };
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) {  // none when they are closed already
    Modules its;
    uint64_t on = 0;
    for (const auto& module : modules) {
      if (home(*module) != static_cast<int>(gpu)) continue;
      its.push_back(module);
      on |= module->gpus();
    }
    if (its.empty() || driver_.cuCtxPushCurrent_v2(gpus_[gpu].context) != CUDA_SUCCESS) continue;
    const auto unload_its = [&] {
      for (const auto& module : its) {
        const CUresult error =
            module->library() ? driver_.cuLibraryUnload(reinterpret_cast<CUlibrary>(module->raw()))
                              : driver_.cuModuleUnload(reinterpret_cast<CUmodule>(module->raw()));
        if (error != CUDA_SUCCESS)
          log_debug("a module is not unloaded: %s", result_text(driver_, error).c_str());
      }
      return CUDA_SUCCESS;
    };
    (void)gpus_.gate().context_wide(
        this_caller(), "the unload of images", unload_its,
        std::popcount(on) > 1 ? GateSpan::kAllGpus : GateSpan::kItsGpus);
    uint64_t bytes = 0;
    for (const auto& module : its) bytes += module->code_bytes();
    if (events_ != nullptr)
      events_->note({.what = "code",
                     .name = {},
                     .gpu = gpu,
                     .bytes = bytes,
                     .why = why,
                     .times = its.size()});
    CUcontext popped = nullptr;
    driver_.cuCtxPopCurrent_v2(&popped);
  }
  modules.clear();
}

void ModuleCache::unload_retired() {
  Modules old;
  {
    std::lock_guard lock(mutex_);
    (void)take_retired(retired_.size(), kAnywhere, &old);
  }
  unload(old);
}

void ModuleCache::unload_idle() {
  Modules old;
  {
    std::lock_guard lock(mutex_);
    (void)take_idle(0, kAnywhere, &old);
  }
  unload(old);
}

void ModuleCache::unload_surplus() {
  if (gpus_.count() <= 1) return;  // the sessions have done so themselves
  Modules old;
  {
    std::lock_guard lock(mutex_);
    (void)take_idle(room_wanted_ ? 0 : limits::kIdleModuleBytes, kAnywhere, &old);
    const bool all = room_wanted_ || !share_;
    if (all || too_many_retired())
      (void)take_retired(all ? retired_.size() : (retired_.size() + 1) / 2, kAnywhere, &old);
    room_wanted_ = false;
  }
  unload(old);
}

bool ModuleCache::make_room(uint32_t gpu) {
  const Counts before = counts();
  if (before.idle == 0 && before.retired == 0) return false;
  bool any = false, elsewhere = false;
  const auto unload_own = [&] {
    Modules old;
    {
      std::lock_guard lock(mutex_);
      elsewhere = take_retired(retired_.size(), only_on(gpu), &old);
      elsewhere |= take_idle(0, only_on(gpu), &old);
      room_wanted_ |= elsewhere;
    }
    any = !old.empty();
    unload(old, "a request found no memory");
  };
  if (!gpus_.gate().if_open(this_caller(), unload_own)) return false;
  return (elsewhere && surplus_ && surplus_(kRoomMs)) || any;
}

ModuleCache::Counts ModuleCache::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts{loaded_, shared_, 0, retired_.size(), 0, kernels_early_.load()};
  for (const auto& [key, slot] : slots_) {
    for (const auto& module : slot->modules) {
      if (!module->users_.empty()) continue;
      ++counts.idle;
      counts.idle_bytes += module->image()->size();
    }
  }
  return counts;
}

}  // namespace tube::proxy

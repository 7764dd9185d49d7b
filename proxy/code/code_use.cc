// Whose the code on a GPU is: what only one function has is its own, what several share is shared
// out among them, and what nobody uses is kept.
#include "proxy/code/module_cache.h"

namespace tube::proxy {

// mutex_ is held.
void ModuleCache::owns(uint64_t session, const std::shared_ptr<LoadedModule>& module) {
  std::erase_if(own_, [](const auto& entry) { return entry.second.expired(); });
  own_.emplace_back(session, module);
}

ModuleCache::Use ModuleCache::use(uint32_t gpu) const {
  Use use;
  std::lock_guard lock(mutex_);
  const auto bytes_of = [gpu](const LoadedModule& module) {
    return (module.gpus() & bit_of(gpu)) != 0 ? module.code_bytes() : 0;
  };
  for (const auto& [key, slot] : slots_) {
    for (const auto& module : slot->modules) {
      const uint64_t bytes = bytes_of(*module);
      use.total_bytes += bytes;
      if (module->users_.empty()) use.kept_bytes += bytes;
      for (const uint64_t session : module->users_)
        use.by_session[session] += bytes / module->users_.size();
    }
  }
  for (const auto& [session, entry] : own_) {
    const std::shared_ptr<LoadedModule> module = entry.lock();
    if (module == nullptr) continue;
    use.total_bytes += bytes_of(*module);
    use.by_session[session] += bytes_of(*module);
  }
  for (const auto& module : retired_) {
    use.total_bytes += bytes_of(*module);
    use.kept_bytes += bytes_of(*module);
  }
  return use;
}

}  // namespace tube::proxy

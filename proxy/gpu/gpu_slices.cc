#include "proxy/gpu/gpu_slices.h"

#include <algorithm>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {

namespace {

constexpr uint32_t kMostGroups = 256;

// The two sides of a split into groups of `size` multiprocessors: the first group, and all the
// others with what remains. False: the driver does not split like this.
bool describe_sides(const Driver& driver, const CUdevResource& all, uint32_t size,
                    CUdevResourceDesc (&sides)[2]) {
  std::vector<CUdevResource> parts(kMostGroups + 1);
  unsigned int groups = kMostGroups;
  CUdevResource rest{};
  if (driver.cuDevSmResourceSplitByCount(parts.data(), &groups, &all, &rest, 0, size) !=
          CUDA_SUCCESS ||
      groups == 0 || groups > kMostGroups || parts[0].sm.smCount != size)
    return false;
  parts.resize(groups);
  if (rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount != 0) parts.push_back(rest);
  if (parts.size() < 2) return false;
  return driver.cuDevResourceGenerateDesc(&sides[0], parts.data(), 1) == CUDA_SUCCESS &&
         driver.cuDevResourceGenerateDesc(&sides[1], parts.data() + 1,
                                          static_cast<unsigned int>(parts.size() - 1)) ==
             CUDA_SUCCESS;
}

}  // namespace

GpuSlices::GpuSlices(const Driver& driver, Gpus& gpus) : driver_(driver), gpus_(gpus) {
  for (uint32_t gpu = 0; gpu < gpus.count(); ++gpu) {
    gpus_of_.push_back(std::make_unique<OneGpu>());
    describe(gpu, *gpus_of_.back());
  }
}

// No green context is destroyed here: each would wait for its context, and the contexts end next.
GpuSlices::~GpuSlices() = default;

void GpuSlices::describe(uint32_t gpu, OneGpu& one) {
  CUdevResource all{};
  if (driver_.cuDeviceGetDevResource == nullptr ||
      driver_.cuDeviceGetDevResource(gpus_[gpu].device, &all, CU_DEV_RESOURCE_TYPE_SM) !=
          CUDA_SUCCESS)
    return;
  std::vector<uint32_t> sizes;
  for (const uint32_t size : policies::sm_splits(
           all.sm.smCount, std::max(all.sm.smCoscheduledAlignment, all.sm.minSmPartitionSize))) {
    Split split;
    if (!describe_sides(driver_, all, size, split.sides)) continue;
    sizes.push_back(size);
    one.splits.push_back(split);
  }
  one.policy = policies::SmSlices(all.sm.smCount, std::move(sizes));
}

bool GpuSlices::make(uint32_t gpu, Split& split) {
  for (int side = 0; side < 2; ++side) {
    CUgreenCtx& green = split.greens[side];
    CUcontext context = nullptr;
    CUresult error = driver_.cuGreenCtxCreate(&green, split.sides[side], gpus_[gpu].device,
                                              CU_GREEN_CTX_DEFAULT_STREAM);
    if (error == CUDA_SUCCESS) error = driver_.cuCtxFromGreenCtx(&context, green);
    if (error == CUDA_SUCCESS) error = driver_.cuCtxPushCurrent_v2(context);
    if (error == CUDA_SUCCESS) {
      ContextGate& gate = gpus_.gate();
      (void)gate.context_wide(this_caller(), "room for streams", [&] {
        gate.reserve().prepare(gate.unwrapped(), context);
        return CUDA_SUCCESS;
      });
      (void)driver_.cuCtxPopCurrent_v2(&context);
      continue;
    }
    log_warn("GPU %d: no slice can be made: %s", gpus_[gpu].ordinal,
             result_text(driver_, error).c_str());
    return false;
  }
  return true;
}

void GpuSlices::make_all() {
  for (uint32_t gpu = 0; gpu < gpus_of_.size(); ++gpu) {
    if (driver_.cuCtxSetCurrent(gpus_[gpu].context) != CUDA_SUCCESS) continue;
    for (Split& split : gpus_of_[gpu]->splits)
      split.state = make(gpu, split) ? Split::State::kMade : Split::State::kRefused;
  }
  if (!gpus_of_.empty()) (void)driver_.cuCtxSetCurrent(gpus_[0].context);
}

void GpuSlices::join(uint64_t session, uint32_t percent) {
  if (percent == 0) return;
  std::lock_guard lock(askers_mutex_);
  askers_.push_back({session, percent});
}

void GpuSlices::comes_to(uint32_t gpu, uint64_t session) {
  uint32_t percent = 0;
  {
    std::lock_guard lock(askers_mutex_);
    for (const Asker& each : askers_)
      if (each.session == session) percent = each.percent;
  }
  if (percent == 0) return;
  change(gpu, [&](policies::SmSlices& policy) { policy.ask(session, percent); });
}

void GpuSlices::want(uint32_t gpu, uint64_t session, std::optional<uint32_t> split) {
  change(gpu, [&](policies::SmSlices& policy) { policy.want(session, split); });
}

// Who holds what afterwards, with the split that it needs.
template <class Change>
void GpuSlices::change(uint32_t gpu, Change change) {
  OneGpu& one = *gpus_of_[gpu];
  Split* wanted = nullptr;
  std::optional<policies::SmSlices::Held> before;
  {
    std::lock_guard lock(one.mutex);
    before = in_use(one);
    change(one.policy);
    const auto held = one.policy.held();
    if (held && one.splits[held->part.split].state == Split::State::kNotMade) {
      wanted = &one.splits[held->part.split];
      wanted->state = Split::State::kInTheMaking;
    }
  }
  // Another thread may be making it: then this one goes on without, and its streams move when it is
  // there.
  const bool made = wanted != nullptr && make(gpu, *wanted);
  std::lock_guard lock(one.mutex);
  if (wanted != nullptr) wanted->state = made ? Split::State::kMade : Split::State::kRefused;
  const auto held = in_use(one);
  if (held == before) return;
  one.version.fetch_add(1, std::memory_order_release);
  if (!held) {
    log_info("GPU %d: session %lu gives its multiprocessors back", gpus_[gpu].ordinal,
             before->function);
    return;
  }
  log_info("GPU %d: session %lu runs on %u multiprocessors of its own, the others on %u",
           gpus_[gpu].ordinal, held->function, one.policy.multiprocessors_of(held->part),
           one.policy.multiprocessors_of({held->part.split, !held->part.large}));
}

// With the GPU's lock.
std::optional<policies::SmSlices::Held> GpuSlices::in_use(const OneGpu& one) const {
  const auto held = one.policy.held();
  if (!held || one.splits[held->part.split].state != Split::State::kMade) return std::nullopt;
  return held;
}

void GpuSlices::exchanges(uint64_t session, const char* what) {
  for (uint32_t gpu = 0; gpu < gpus_of_.size(); ++gpu) {
    OneGpu& one = *gpus_of_[gpu];
    std::lock_guard lock(one.mutex);
    const auto before = in_use(one);
    one.policy.exchanges(session);
    if (!before || before->function != session) continue;
    one.version.fetch_add(1, std::memory_order_release);
    log_warn("GPU %d: session %lu holds no slice any more: %s", gpus_[gpu].ordinal, session, what);
  }
}

void GpuSlices::leave(uint64_t session) {
  {
    std::lock_guard lock(askers_mutex_);
    std::erase_if(askers_, [&](const Asker& each) { return each.session == session; });
  }
  for (const auto& one : gpus_of_) {
    std::lock_guard lock(one->mutex);
    const auto before = one->policy.held();
    one->policy.forget(session);
    if (before && before->function == session) one->version.fetch_add(1, std::memory_order_release);
  }
}

GpuPlace GpuSlices::place(uint32_t gpu, uint64_t session) const {
  const OneGpu& one = *gpus_of_[gpu];
  std::lock_guard lock(one.mutex);
  GpuPlace place;
  place.version = one.version.load(std::memory_order_relaxed);
  const auto held = in_use(one);
  if (!held) return place;
  place.slice = held->function == session;
  const bool large = held->part.large == place.slice;
  place.green = one.splits[held->part.split].greens[large ? 1 : 0];
  return place;
}

std::optional<GpuSlices::Held> GpuSlices::held(uint32_t gpu) const {
  const OneGpu& one = *gpus_of_[gpu];
  std::lock_guard lock(one.mutex);
  const auto held = in_use(one);
  if (!held) return std::nullopt;
  return Held{held->function, one.policy.multiprocessors_of(held->part),
              one.policy.multiprocessors_of({held->part.split, !held->part.large})};
}

std::vector<uint32_t> GpuSlices::made(uint32_t gpu) const {
  const OneGpu& one = *gpus_of_[gpu];
  std::lock_guard lock(one.mutex);
  std::vector<uint32_t> sizes;
  for (uint32_t split = 0; split < one.splits.size(); ++split)
    if (one.splits[split].state == Split::State::kMade)
      sizes.push_back(one.policy.multiprocessors_of({split, false}));
  return sizes;
}

}  // namespace tube::proxy

#include "hook/graphs/graph_steps.h"

#include <cstring>
#include <map>
#include <new>
#include <vector>

#include "base/log.h"
#include "hook/graphs/graph_step_what.h"
#include "hook/memory/copy.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {

// Under g_steps().lock.
struct StepSet {
  Lock in_turn;  // rank 1: held while a launch is posted, which may wait for the proxy; so never
                 // taken by a helper thread
  struct Entry {
    uint32_t word;
    std::byte* staging;
  };
  std::vector<Entry> entries;
  std::vector<wire::GraphStepPlace> places;  // as the proxy gets them, in the order of the steps
  std::vector<uint64_t> staging;             // pinned allocations
  Context* context = nullptr;                // of the staging: one that never ends
  Mark last;                                 // behind the last launch
  bool functions = false, copies = false;    // has such steps
  bool active = false;     // launches are outstanding, as far as the helper threads have looked
  bool launching = false;  // one is on its way: `last` does not cover it yet
  bool retired = false;
};

namespace {

using What = StepWhat;

struct Steps {
  Lock lock;  // rank 2: the members
  std::map<What, uint64_t, What::Less> tags;
  std::vector<const What*> by_number;  // a tag's low bits - 1
  std::vector<StepSet*> active;
  std::vector<StepSet*> over;  // to be given back by the program's threads: the helper threads
                               // may not wait for room in the ring
};
Steps& g_steps() {
  static Steps* s = new Steps;
  return *s;
}
std::atomic<bool> g_steps_made{false};
std::atomic<bool> g_memory_nodes{false};

uint64_t tag_for(const What& what, bool copies) {
  Steps& s = g_steps();
  Locked locked(s.lock);
  g_steps_made.store(true, std::memory_order_release);
  const auto [entry, fresh] = s.tags.try_emplace(what, s.by_number.size() + 1);
  if (fresh) s.by_number.push_back(&entry->first);
  return entry->second | (copies ? wire::kStepCopyBit : 0);
}

const What* find(uint64_t tag) {
  Steps& s = g_steps();
  const uint64_t number = tag & ~wire::kStepCopyBit;
  Locked locked(s.lock);
  return number == 0 || number > s.by_number.size() ? nullptr : s.by_number[number - 1];
}

// ---- copies ----
struct HostSide {
  const std::byte* base;
  uint64_t pitch, height, x, y, z;
  std::byte* row(uint64_t r, uint64_t slice) const {
    return const_cast<std::byte*>(base) + ((z + slice) * height + y + r) * pitch + x;
  }
};

// An address that the call calls unified may be host memory too.
bool host_address(CUmemorytype type, const void* host, CUdeviceptr device, uint64_t* address) {
  if (type == CU_MEMORYTYPE_ARRAY) return false;
  *address = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
  const Says says = type == CU_MEMORYTYPE_HOST     ? Says::kHost
                    : type == CU_MEMORYTYPE_DEVICE ? Says::kDevice
                                                   : Says::kNothing;
  return !gpu_visible(side_of(*address, says));
}

HostSide source(const CUDA_MEMCPY3D& c) {
  uint64_t base = 0;
  (void)host_address(c.srcMemoryType, c.srcHost, c.srcDevice, &base);
  return {reinterpret_cast<const std::byte*>(base),
          c.srcPitch != 0 ? c.srcPitch : c.srcXInBytes + c.WidthInBytes,
          c.srcHeight != 0 ? c.srcHeight : c.srcY + c.Height,
          c.srcXInBytes,
          c.srcY,
          c.srcZ};
}
HostSide target(const CUDA_MEMCPY3D& c) {
  uint64_t base = 0;
  (void)host_address(c.dstMemoryType, c.dstHost, c.dstDevice, &base);
  return {reinterpret_cast<const std::byte*>(base),
          c.dstPitch != 0 ? c.dstPitch : c.dstXInBytes + c.WidthInBytes,
          c.dstHeight != 0 ? c.dstHeight : c.dstY + c.Height,
          c.dstXInBytes,
          c.dstY,
          c.dstZ};
}

void move_rows(const What& what, std::byte* staging) {
  const CUDA_MEMCPY3D& c = what.copy;
  const HostSide from = source(c), to = target(c);
  for (uint64_t z = 0; z < c.Depth; ++z) {
    for (uint64_t y = 0; y < c.Height; ++y) {
      std::byte* packed = staging + (z * c.Height + y) * c.WidthInBytes;
      if (what.direction == wire::StepDirection::kToGpu)
        std::memcpy(packed, from.row(y, z), c.WidthInBytes);
      else if (what.direction == wire::StepDirection::kFromGpu)
        std::memcpy(to.row(y, z), packed, c.WidthInBytes);
      else std::memmove(to.row(y, z), from.row(y, z), c.WidthInBytes);
    }
  }
}

CUresult gpu_side(CUmemorytype type, CUarray array, CUdeviceptr device, const void* host,
                  wire::GraphStepParams* step) {
  if (type == CU_MEMORYTYPE_ARRAY) {
    step->kind = wire::SideKind::kArray;
    return id_of(Kind::kArray, array, &step->address) == CUDA_SUCCESS ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
  }
  step->address = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
  return step->address == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// ---- sets ----
void free_staging(const StepSet& set) {
  for (const uint64_t address : set.staging) {
    Request<wire::tubePinnedFree> r;
    r.in_context(set.context);
    r->address = address;
    (void)r.post();
  }
}

// Nothing of the set is in use by the GPU any more.
void give_back(StepSet* set) {
  for (const StepSet::Entry& entry : set->entries) connection().words.release_mailbox(entry.word);
  free_staging(*set);
  delete set;
}

void give_back_what_is_over() {
  std::vector<StepSet*> over;
  {
    Locked locked(g_steps().lock);
    over.swap(g_steps().over);
  }
  for (StepSet* set : over) give_back(set);
}

// An instance lives as long as its program, whatever becomes of the context that is current when it
// is made, and a thread that has none may update it.
Context* staging_context(const StepSet* before) {
  if (before != nullptr) return before->context;
  const Context* current = current_context();
  return unending_context(current != nullptr ? current->visible_device : 0);
}

CUresult allocate_staging(StepSet* set, uint64_t bytes, uint64_t* address) {
  wire::tubePinnedAlloc_reply reply{};
  Request<wire::tubePinnedAlloc> r;
  r.in_context(set->context);
  r->bytes = bytes;
  if (const CUresult result = r.call(&reply); result != CUDA_SUCCESS) return result;
  set->staging.push_back(reply.address);
  *address = reply.address;
  return CUDA_SUCCESS;
}

constexpr uint64_t aligned(uint64_t bytes) { return (bytes + 255) & ~uint64_t{255}; }

CUresult fill_set(StepSet* set, const wire::GraphStep* steps, size_t count) {
  uint64_t total = 0, base = 0;
  for (size_t i = 0; i < count; ++i) total += aligned(steps[i].staging_bytes);
  if (total != 0) {
    if (const CUresult r = allocate_staging(set, total, &base); r != CUDA_SUCCESS) return r;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint32_t word = connection().words.allocate_mailbox(wire::kStepDone);
    if (word == shared::kNoWord) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t staging = steps[i].staging_bytes == 0 ? 0 : base;
    (wire::is_copy_step(steps[i].tag) ? set->copies : set->functions) = true;
    set->entries.push_back({word, reinterpret_cast<std::byte*>(staging)});
    set->places.push_back({word, 0, staging});
    base += aligned(steps[i].staging_bytes);
  }
  return CUDA_SUCCESS;
}

// A set whose launches have ended leaves the list; false when they have not.
bool settle(Steps& s, StepSet* set, bool broken) {
  if (set->launching || (!broken && !mark_reached(set->last))) return false;
  set->active = false;
  std::erase(s.active, set);
  return true;
}

// Takes a due step out of the active sets, or a set that has ended.
struct Due {
  const What* what = nullptr;
  uint32_t word = 0;
  std::byte* staging = nullptr;
};
bool find_due(Steps& s, StepKind kind, bool broken, bool* waiting, Due* due) {
  const bool copies = kind == StepKind::kCopy;
  const auto concerns = [copies](const StepSet* set) {
    return copies ? set->copies : set->functions;
  };
  Locked locked(s.lock);
  for (StepSet* set : s.active) {
    if (!concerns(set)) continue;
    for (const StepSet::Entry& entry : set->entries) {
      const uint64_t value = connection().words.load(entry.word);
      if (broken || value >= wire::kStepDone || value == 0 || wire::is_copy_step(value) != copies)
        continue;
      const uint64_t number = value & ~wire::kStepCopyBit;
      if (number == 0 || number > s.by_number.size()) continue;
      *due = {s.by_number[number - 1], entry.word, entry.staging};
      return true;
    }
  }
  for (StepSet* set : s.active) {
    if (!concerns(set)) continue;
    if (!settle(s, set, broken)) {
      *waiting = true;
      continue;
    }
    if (set->retired) s.over.push_back(set);
    return true;  // the list changed
  }
  return false;
}

}  // namespace

uint64_t tag_of(CUhostFn function, void* data) { return tag_for(what_of(function, data), false); }

bool needs_step(const CUDA_MEMCPY3D& c) {
  uint64_t address = 0;
  return host_address(c.srcMemoryType, c.srcHost, c.srcDevice, &address) ||
         host_address(c.dstMemoryType, c.dstHost, c.dstDevice, &address);
}

CUresult tag_of(const CUDA_MEMCPY3D& c, wire::GraphStepParams* step) {
  uint64_t src = 0, dst = 0;
  const bool from_host = host_address(c.srcMemoryType, c.srcHost, c.srcDevice, &src);
  const bool to_host = host_address(c.dstMemoryType, c.dstHost, c.dstDevice, &dst);
  if ((from_host && src == 0) || (to_host && dst == 0)) return CUDA_ERROR_INVALID_VALUE;
  if (c.WidthInBytes == 0 || c.Height == 0 || c.Depth == 0) return CUDA_ERROR_INVALID_VALUE;
  *step = {};
  step->direction = from_host && to_host ? wire::StepDirection::kAlone
                    : from_host          ? wire::StepDirection::kToGpu
                                         : wire::StepDirection::kFromGpu;
  step->tag = tag_for(what_of(c, step->direction), true);
  step->extent[0] = c.WidthInBytes, step->extent[1] = c.Height, step->extent[2] = c.Depth;
  if (step->direction == wire::StepDirection::kAlone) return CUDA_SUCCESS;
  if (from_host) {
    const HostSide side = target(c);  // its base is not used: the numbers are
    step->pitch = side.pitch, step->height = side.height;
    step->origin[0] = c.dstXInBytes, step->origin[1] = c.dstY, step->origin[2] = c.dstZ;
    return gpu_side(c.dstMemoryType, c.dstArray, c.dstDevice, c.dstHost, step);
  }
  const HostSide side = source(c);
  step->pitch = side.pitch, step->height = side.height;
  step->origin[0] = c.srcXInBytes, step->origin[1] = c.srcY, step->origin[2] = c.srcZ;
  return gpu_side(c.srcMemoryType, c.srcArray, c.srcDevice, c.srcHost, step);
}

bool function_of(uint64_t tag, CUDA_HOST_NODE_PARAMS* params) {
  const What* what = wire::is_copy_step(tag) ? nullptr : find(tag);
  if (what == nullptr) return false;
  *params = {what->function, what->data};
  return true;
}

bool copy_of(uint64_t tag, CUDA_MEMCPY3D* params) {
  const What* what = wire::is_copy_step(tag) ? find(tag) : nullptr;
  if (what != nullptr) *params = what->copy;
  return what != nullptr;
}

static CUresult capture(Stream* stream, const wire::GraphStepParams& step) {
  Request<wire::tubeCaptureStep> r(stream, blob_room(sizeof step));
  r->stream = stream->id;
  r.put(&wire::tubeCaptureStep::params, &step, sizeof step);
  return r.call();
}

CUresult capture_function(Stream* stream, CUhostFn function, void* data) {
  wire::GraphStepParams step{};
  step.tag = tag_of(function, data);
  return capture(stream, step);
}

CUresult capture_copy(Stream* stream, const CUDA_MEMCPY3D& copy) {
  wire::GraphStepParams step;
  if (const CUresult r = tag_of(copy, &step); r != CUDA_SUCCESS) return r;
  return capture(stream, step);
}

void memory_nodes_exist() { g_memory_nodes.store(true, std::memory_order_release); }

CUresult take_places(uint64_t graph, const StepSet* before, Places* places) {
  if (!g_steps_made.load(std::memory_order_acquire) &&
      !g_memory_nodes.load(std::memory_order_acquire))
    return CUDA_SUCCESS;
  give_back_what_is_over();
  wire::tubeGraphSteps_reply reply{};
  ReplyBlobs blobs;
  {
    Request<wire::tubeGraphSteps> r;
    r->graph = graph;
    if (const CUresult result = r.call(&reply, &blobs); result != CUDA_SUCCESS) return result;
  }
  places->memory_nodes = (reply.flags & wire::kGraphHasMemoryNodes) != 0;
  const auto steps = blobs.get(reply.steps);
  const size_t count = steps.size() / sizeof(wire::GraphStep);
  if (count == 0) return CUDA_SUCCESS;
  auto* set = new (std::nothrow) StepSet;
  if (set == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  set->context = staging_context(before);
  const CUresult filled =
      set->context == nullptr
          ? CUDA_ERROR_OUT_OF_MEMORY
          : fill_set(set, reinterpret_cast<const wire::GraphStep*>(steps.data()), count);
  if (filled != CUDA_SUCCESS) {
    give_back(set);
    return filled;
  }
  if ((set->functions && !start_callbacks()) || (set->copies && !start_copies())) {
    give_back(set);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *places = {set, set->places.data(), static_cast<uint32_t>(count * sizeof(wire::GraphStepPlace)),
             places->memory_nodes};
  return CUDA_SUCCESS;
}

void retire(StepSet* set) {
  give_back_what_is_over();
  if (set == nullptr) return;
  {
    Steps& s = g_steps();
    Locked locked(s.lock);
    set->retired = true;
    if (set->active) return;  // a helper thread sees when it is over
  }
  give_back(set);
}

CUresult launch_watched(StepSet* set, Stream* stream, CUresult (*post)(void*), void* argument) {
  // Nothing may fail between launch and mark: nobody would do the steps.
  if (const CUresult r = ensure_word(stream); r != CUDA_SUCCESS) return r;
  Steps& s = g_steps();
  Locked in_turn(set->in_turn);
  {
    Locked locked(s.lock);
    if (!set->active) s.active.push_back(set);
    set->active = set->launching = true;
  }
  wake_callbacks();  // the answer to this launch may need a step of an earlier one
  Mark behind;
  CUresult result = post(argument);
  if (result == CUDA_SUCCESS) result = mark_stream(stream, &behind);
  {
    Locked locked(s.lock);
    set->launching = false;
    if (result == CUDA_SUCCESS) set->last = behind;
  }
  wake_callbacks();
  return result;
}

CUresult larger_place(StepSet* set, uint32_t word, uint64_t bytes, wire::GraphStepPlace* place) {
  *place = {word, 0, 0};
  if (const CUresult r = allocate_staging(set, aligned(bytes), &place->staging); r != CUDA_SUCCESS)
    return r;
  bool over;
  {
    Locked locked(g_steps().lock);
    over = !set->launching && mark_reached(set->last);
  }
  if (!over) place->word = connection().words.allocate_mailbox(wire::kStepDone);
  return place->word == shared::kNoWord ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void take_place(StepSet* set, uint32_t word, const wire::GraphStepPlace& place) {
  auto* staging = reinterpret_cast<std::byte*>(place.staging);
  Locked locked(g_steps().lock);
  if (place.word != word) set->entries.push_back({place.word, staging});
  for (StepSet::Entry& entry : set->entries) {
    if (entry.word == place.word) entry.staging = staging;
  }
}

void give_up_place(uint32_t word, const wire::GraphStepPlace& place) {
  if (place.word != word) connection().words.release_mailbox(place.word);
}

bool run_due_step(StepKind kind, bool broken, bool* waiting) {
  Due due;
  if (!find_due(g_steps(), kind, broken, waiting, &due)) return false;
  if (due.what == nullptr) return true;
  if (work_failure() != CUDA_SUCCESS) return true;  // since it was due: see calls/callback.cc
  if (due.what->function != nullptr) due.what->function(due.what->data);
  else move_rows(*due.what, due.staging);
  connection().words.store(due.word, wire::kStepDone);
  return true;
}

}  // namespace tube::hook

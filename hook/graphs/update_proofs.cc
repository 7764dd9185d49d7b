#include "hook/graphs/update_proofs.h"

#include <utility>

#include "hook/memory/memory_map.h"

namespace tube::hook {
namespace {

uint64_t pair(uint64_t high, uint64_t low) { return high << 32 | low; }
uint64_t first_word(CUgraphNodeType type, const Context* context) {
  return pair(static_cast<uint32_t>(type), context->number);
}

// Allocations of one class differ in nothing but their address and size; a module's variable is a
// class of its own. 0: not inside one piece of memory of this program and device. Mapped memory is
// of a class while its GPU may read and write it; of imported memory nothing is proven.
uint64_t memory_class(uint64_t address, uint64_t bytes, const Context* context) {
  Allocation a;
  if (address == 0 || !memory_map().find(address, &a)) return 0;
  const uint64_t offset = address - a.base;
  if (bytes > a.size_bytes || offset > a.size_bytes - bytes) return 0;
  static_assert(alignof(Context) >= 4);
  if (a.kind == MemoryKind::kMapped && a.own_device == static_cast<int32_t>(context->device))
    return uint64_t{context->device} << 2 | 3;
  if (a.kind != MemoryKind::kDevice && a.kind != MemoryKind::kGlobal) return 0;
  if (a.context == nullptr || a.context->device != context->device) return 0;
  if (a.kind == MemoryKind::kGlobal) return a.buffer_id << 2 | 2;
  return reinterpret_cast<uint64_t>(a.context) | ((a.flags & kFromPool) != 0 ? 1 : 0);
}

// The address of one side; 0 for what is no row of memory.
uint64_t row_address(CUmemorytype type, CUdeviceptr device, size_t x, size_t y, size_t z,
                     size_t lod) {
  const bool addressed = type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
  return addressed && x == 0 && y == 0 && z == 0 && lod == 0 ? device : 0;
}

}  // namespace

bool shape_of(const Kernel* kernel, const LaunchShape& launch, uint32_t parameter_bytes,
              const Context* context, UpdateShape* shape) {
  if (context == nullptr) return false;
  *shape = {{first_word(CU_GRAPH_NODE_TYPE_KERNEL, context), kernel->id,
             pair(launch.grid[0], launch.grid[1]), pair(launch.grid[2], launch.block[0]),
             pair(launch.block[1], launch.block[2]), pair(launch.shared_bytes, parameter_bytes)}};
  return true;
}

bool shape_of(const CUDA_MEMCPY3D& copy, const Context* context, UpdateShape* shape) {
  if (context == nullptr || copy.WidthInBytes == 0 || copy.Height != 1 || copy.Depth != 1)
    return false;
  const uint64_t src = row_address(copy.srcMemoryType, copy.srcDevice, copy.srcXInBytes, copy.srcY,
                                   copy.srcZ, copy.srcLOD);
  const uint64_t dst = row_address(copy.dstMemoryType, copy.dstDevice, copy.dstXInBytes, copy.dstY,
                                   copy.dstZ, copy.dstLOD);
  const uint64_t from = memory_class(src, copy.WidthInBytes, context),
                 to = memory_class(dst, copy.WidthInBytes, context);
  if (from == 0 || to == 0 || (src < dst + copy.WidthInBytes && dst < src + copy.WidthInBytes))
    return false;
  *shape = {{first_word(CU_GRAPH_NODE_TYPE_MEMCPY, context), copy.WidthInBytes,
             pair(copy.srcMemoryType, copy.dstMemoryType), from, to, copy.srcPitch, copy.srcHeight,
             copy.dstPitch, copy.dstHeight}};
  return true;
}

bool shape_of(const CUDA_MEMSET_NODE_PARAMS& fill, const Context* context, UpdateShape* shape) {
  const uint64_t element = fill.elementSize;
  if (context == nullptr || fill.height != 1 || fill.width == 0 || fill.width >> 56) return false;
  if ((element != 1 && element != 2 && element != 4) || fill.dst % element != 0) return false;
  if (element != 4 && fill.value >> (8 * element)) return false;
  const uint64_t memory = memory_class(fill.dst, fill.width * element, context);
  if (memory == 0) return false;
  *shape = {
      {first_word(CU_GRAPH_NODE_TYPE_MEMSET, context), element, fill.width, fill.pitch, memory}};
  return true;
}

bool UpdateProofs::hold(uint64_t exec, uint64_t node, const UpdateShape& shape) const {
  const auto nodes = execs_.find(exec);
  if (nodes == execs_.end()) return false;
  const auto proven = nodes->second.find(node);
  return proven != nodes->second.end() && proven->second == shape;
}

void UpdateProofs::add(uint64_t exec, uint64_t node, const UpdateShape& shape, uint64_t version) {
  if (version != version_) return;
  if (count_ >= kMostNodes) drop_all();
  count_ += execs_[exec].insert_or_assign(node, shape).second ? 1 : 0;
}

void UpdateProofs::drop(uint64_t exec, uint64_t node) {
  ++version_;
  const auto nodes = execs_.find(exec);
  if (nodes != execs_.end()) count_ -= nodes->second.erase(node);
}

UpdateProofs::Nodes UpdateProofs::drop(uint64_t exec) {
  ++version_;
  auto nodes = execs_.extract(exec);
  if (nodes.empty()) return {};
  count_ -= nodes.mapped().size();
  return std::move(nodes.mapped());
}

UpdateProofs::Execs UpdateProofs::drop_all() {
  ++version_;
  count_ = 0;
  return std::exchange(execs_, {});
}

UpdateProofs& update_proofs() {
  static auto* proofs = new UpdateProofs;
  return *proofs;
}

}  // namespace tube::hook

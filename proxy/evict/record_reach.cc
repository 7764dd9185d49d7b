#include "proxy/evict/record_reach.h"

#include <cstring>

#include "proxy/common/region_reach.h"

namespace tube::proxy {

bool works_away(wire::Call call) {
  switch (call) {
    case wire::Call::tubeSignal:
    case wire::Call::tubeStreamCreate:
    case wire::Call::tubeStreamDestroy:
    case wire::Call::tubeStreamProbe:
    case wire::Call::tubeStreamWaitEvent:
    case wire::Call::tubeEventCreate:
    case wire::Call::tubeEventDestroy:
    case wire::Call::tubeEventRecord:
    case wire::Call::tubeEventQuery:
    case wire::Call::tubeEventElapsed:
    case wire::Call::tubeMemFree:
    case wire::Call::tubeMemFreeAsync:
    case wire::Call::tubeMemTake:
    case wire::Call::tubeMemCut:
    case wire::Call::tubeMemLeaseEnd:
    case wire::Call::tubeMemGetInfo:
    case wire::Call::tubePinnedAlloc:
    case wire::Call::tubePinnedFree:
    case wire::Call::tubeUnload:
    case wire::Call::tubeContextDestroy:
    case wire::Call::tubePrimaryReset:
    case wire::Call::cuGraphDestroy:
    case wire::Call::cuGraphExecDestroy:
    case wire::Call::cuTexObjectDestroy:
    case wire::Call::cuSurfObjectDestroy:
    case wire::Call::cuArrayDestroy:
    case wire::Call::cuMipmappedArrayDestroy:
    case wire::Call::cuMemRelease:
    case wire::Call::tubeCaptureInfo:
    case wire::Call::tubeCollectOutput: return true;
    default: return false;  // whatever may name, take or look at memory
  }
}

bool works_promised(wire::Call call) {
  switch (call) {
    case wire::Call::tubeMemAlloc:
    case wire::Call::tubeHostRegister:
    case wire::Call::tubeHostUnregister:
    case wire::Call::tubeMoreChunks:
    case wire::Call::tubeMayCopy:
    case wire::Call::tubeLoadImage:
    case wire::Call::tubeGetKernel:
    case wire::Call::tubeGetGlobal:
    case wire::Call::tubeListKernels:
    case wire::Call::tubeKernelSetAttribute:
    case wire::Call::tubeKernelGetAttribute:
    case wire::Call::tubeKernelSetCacheConfig:
    case wire::Call::tubeOccupancy:
    case wire::Call::tubeLink:
    case wire::Call::tubeContextCreate:
    case wire::Call::tubeContextLimit:
    case wire::Call::tubeGpcTable: return true;
    default: return works_away(call);
  }
}

bool begins_capture(wire::Call call) {
  return call == wire::Call::cuStreamBeginCapture_v2 || call == wire::Call::tubeBeginCaptureToGraph;
}

namespace {

// Which reach memory by addresses that stand in them, and by nothing else.
bool names_what_it_reaches(wire::Call call) {
  switch (call) {
    case wire::Call::tubeLaunch:
    case wire::Call::tubeCopyInline:
    case wire::Call::tubeMemset:
    case wire::Call::tubeHostFunc:
    case wire::Call::tubeGraphKernelNode:
    case wire::Call::tubeGraphCopyNode:
    case wire::Call::tubeGraphMemsetNode:
    case wire::Call::tubeGraphNode:
    case wire::Call::tubeCaptureStep:
    case wire::Call::tubeGraphInstantiate:
    case wire::Call::tubeGraphExecUpdate:
    case wire::Call::tubeGraphSteps:
    case wire::Call::tubeBeginCaptureToGraph:
    case wire::Call::tubeGetManaged:
    case wire::Call::tubeGraphNodeGet:
    case wire::Call::tubeGraphConditional:
    case wire::Call::tubeGraphAllocAsync:
    case wire::Call::tubeGraphFreeAsync:
    case wire::Call::tubeGraphFree:
    case wire::Call::tubeGraphMemory:
    case wire::Call::tubeUserObjectCreate:
    case wire::Call::tubeUserObjectCount:
    case wire::Call::cuGraphGetNodes:
    case wire::Call::cuGraphGetRootNodes:
    case wire::Call::cuGraphNodeGetType:
    case wire::Call::cuGraphAddDependencies:
    case wire::Call::cuGraphAddDependencies_v2:
    case wire::Call::cuGraphExecGetFlags:
    case wire::Call::cuStreamUpdateCaptureDependencies:
    case wire::Call::cuStreamUpdateCaptureDependencies_v2:
    case wire::Call::cuGraphCreate:
    case wire::Call::cuGraphClone:
    case wire::Call::cuGraphLaunch:
    case wire::Call::cuGraphUpload:
    case wire::Call::cuStreamBeginCapture_v2:
    case wire::Call::cuStreamEndCapture:
    case wire::Call::cuStreamSetAttribute:
    case wire::Call::cuStreamGetAttribute:
    case wire::Call::cuStreamWriteValue32_v2:
    case wire::Call::cuStreamWriteValue64_v2:
    case wire::Call::cuStreamWaitValue32_v2:
    case wire::Call::cuStreamWaitValue64_v2:
    case wire::Call::cuStreamBatchMemOp_v2:
    case wire::Call::cuTexObjectCreate:
    case wire::Call::cuSurfObjectCreate:
    case wire::Call::cuArrayCreate_v2:
    case wire::Call::cuArray3DCreate_v2:
    case wire::Call::cuTensorMapEncodeTiled:
    case wire::Call::cuTensorMapEncodeIm2col:
    case wire::Call::cuTensorMapEncodeIm2colWide:
    case wire::Call::cuTensorMapReplaceAddress: return true;
    default: return false;
  }
}

// After which other processes, or the program's own mappings, reach the function's memory.
bool shares_memory(wire::Call call) {
  switch (call) {
    case wire::Call::tubeIpcGetMem:
    case wire::Call::tubeIpcOpenMem:
    case wire::Call::tubeIpcOpenEvent:
    case wire::Call::tubeIpcGetEvent:
    case wire::Call::tubeExportHandle:
    case wire::Call::tubeImportHandle:
    case wire::Call::tubeImportExternalMemory:
    case wire::Call::tubeImportExternalSemaphore:
    case wire::Call::tubeRangeHandle:
    case wire::Call::tubeStoreOpen:
    case wire::Call::cuMemAddressReserve:
    case wire::Call::cuMemCreate:
    case wire::Call::cuMemMap: return true;
    default: return false;
  }
}

// The GPU waits for the host, which may write until then what later records copy; or copies at each
// launch.
bool lets_the_host_write_later(wire::Call call) {
  switch (call) {
    case wire::Call::tubeHostFunc:
    case wire::Call::tubeCaptureStep:
    case wire::Call::tubeGraphNode:
    case wire::Call::cuStreamWaitValue32_v2:
    case wire::Call::cuStreamWaitValue64_v2:
    case wire::Call::cuStreamBatchMemOp_v2: return true;
    default: return false;
  }
}

template <class X>
bool decode(std::span<const std::byte> payload, X* out) {
  if (payload.size() < sizeof(X)) return false;  // its handler says what is wrong with it
  std::memcpy(out, payload.data(), sizeof(X));
  return true;
}

}  // namespace

Reach RecordReach::note(wire::Call call, std::span<const std::byte> payload) {
  if (shares_memory(call)) return Reach::kUnknown;
  if (later_) return Reach::kNamed;
  later_ = lets_the_host_write_later(call);
  if (wire::tubeGraphCopyNode node; call == wire::Call::tubeGraphCopyNode) {
    later_ =
        decode(payload, &node) && node.src_kind == wire::SideKind::kAddress && from_host(node.src);
  } else if (call == wire::Call::tubeCopy || call == wire::Call::tubeCopy3D) {
    later_ = host_.captures();
  }
  return Reach::kNamed;
}

Reach RecordReach::of(wire::Call call, std::span<const std::byte> payload,
                      policies::AddressSpans& spans) {
  if (note(call, payload) == Reach::kUnknown) return Reach::kUnknown;
  spans.scan_small(payload);
  switch (call) {
    case wire::Call::tubeCopy: return copy(payload, spans);
    case wire::Call::tubeCopy3D: return region(payload, spans);
    case wire::Call::tubeCopyChunk: return chunk(payload, spans);
    case wire::Call::cuGraphLaunch: return later_ ? Reach::kEverything : Reach::kNamed;
    default: return names_what_it_reaches(call) ? Reach::kNamed : Reach::kEverything;
  }
}

Reach RecordReach::copy(std::span<const std::byte> payload, policies::AddressSpans& spans) {
  wire::tubeCopy call;
  if (!decode(payload, &call) || !from_host(call.src)) return Reach::kNamed;
  const auto bytes = host_.pinned(call.src, call.bytes);
  if (later_ || bytes.empty()) return Reach::kEverything;
  spans.scan_bulk(bytes, call.dst);
  return Reach::kNamed;
}

Reach RecordReach::chunk(std::span<const std::byte> payload, policies::AddressSpans& spans) {
  wire::tubeCopyChunk call;
  if (decode(payload, &call) && call.becomes == wire::ChunkBecomes::kFree)
    spans.scan_bulk(host_.chunk(call.chunk, call.chunk_offset, call.bytes), call.dptr);
  return Reach::kNamed;
}

// All from the first byte of a region to its last one, if that is not much more than its rows.
Reach RecordReach::region(std::span<const std::byte> payload, policies::AddressSpans& spans) {
  wire::tubeCopy3D call;
  if (!decode(payload, &call)) return Reach::kNamed;
  const bool pinned = call.src_kind == wire::SideKind::kAddress && from_host(call.src);
  if (!pinned && call.src_kind != wire::SideKind::kChunk) return Reach::kNamed;
  if (pinned && later_) return Reach::kEverything;
  const uint64_t(&extent)[3] = call.extent;
  if (extent[0] == 0 || extent[1] == 0 || extent[2] == 0) return Reach::kNamed;
  uint64_t bytes = 0;
  if (!region_reach({call.src_origin, extent, call.src_pitch, call.src_height}, &bytes) ||
      bytes >> 40)
    return Reach::kEverything;
  const auto found = pinned ? host_.pinned(call.src, bytes)
                            : host_.chunk(static_cast<uint32_t>(call.src >> 20),
                                          call.src & ((1u << 20) - 1), bytes);
  if (found.empty()) return Reach::kEverything;
  spans.scan_bulk(found, call.dst_kind == wire::SideKind::kAddress ? call.dst : 0);
  return Reach::kNamed;
}

}  // namespace tube::proxy

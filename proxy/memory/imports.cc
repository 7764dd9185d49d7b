#include "proxy/memory/imports.h"

#include <cstring>
#include <utility>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/descriptors.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/broker.h"
#include "proxy/memory/device_memory.h"

namespace tube::proxy {

Imports::Imports(const Driver& driver, const Gpus& gpus, MemoryMap& map, Ranges& ranges,
                 uint64_t session)
    : driver_(driver), gpus_(gpus), map_(map), ranges_(ranges), session_(session) {}
Imports::~Imports() = default;

bool Imports::reaches(uint32_t gpu, int device) const {
  if (static_cast<uint32_t>(device) == gpu) return true;
  for (const CUmemAccessDesc& access : gpus_[static_cast<uint32_t>(device)].access) {
    if (access.location.id == gpus_[gpu].device) return true;
  }
  return false;
}

CUresult Imports::open_here(const MemoryHandle& handle, Import* import) {
  SharedMemory memory;
  if (CUresult error = map_.shares().open(handle.token, session_, &memory); error != CUDA_SUCCESS)
    return error;
  const BlockPlace there = map_.find(memory.block).value_or(BlockPlace{});  // held by its share
  import->token = handle.token;
  import->opened = Opened{memory.base, memory.bytes, there.device};
  if (there.window == window_) return CUDA_SUCCESS;
  import->source = Source::kSecondMapping;
  const CUresult error = map_.place(memory.block, window_, session_, &import->mapping);
  if (error != CUDA_SUCCESS) {
    map_.shares().close(handle.token);
    return error;
  }
  import->opened.address = import->mapping + (memory.base - there.address);
  return CUDA_SUCCESS;
}

CUresult Imports::open_there(const MemoryHandle& handle, Import* import) {
  import->source = Source::kOtherProxy;
  Result<BrokeredMemory> answer = ask_broker(handle);
  if (answer.ok() && is_scarce(answer->lease.get())) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!answer.ok()) {
    log_info("memory of another proxy cannot be opened: %s", answer.error().message.c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  int device = -1;
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) {
    if (std::memcmp(&gpus_[gpu].uuid, answer->uuid, sizeof(answer->uuid)) == 0)
      device = static_cast<int>(gpu);
  }
  if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
  Placed placed;
  const CUresult error =
      map_.import_placed(window_, session_, device, answer->fd.get(), answer->block_bytes, &placed);
  if (error != CUDA_SUCCESS) return error;
  import->block = placed.block;
  import->lease = std::move(answer->lease);
  import->opened = Opened{placed.address + answer->offset, answer->bytes, device};
  return CUDA_SUCCESS;
}

// The handle is none of Tube's: a native program's, or nonsense, which the driver has codes for.
CUresult Imports::open_with_driver(uint32_t flags, Import* import) {
  import->source = Source::kDriver;
  CUdeviceptr address = 0;
  CUipcMemHandle handle;
  std::memcpy(&handle, import->handle.data(), sizeof(handle));
  CUresult error = driver_.cuIpcOpenMemHandle_v2(&address, handle, flags);
  if (error != CUDA_SUCCESS) return error;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  int device = 0;
  error = driver_.cuMemGetAddressRange_v2(&base, &bytes, address);
  if (error == CUDA_SUCCESS)
    error = driver_.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  import->opened = Opened{address, bytes - (address - base), device};
  if (error != CUDA_SUCCESS) driver_.cuIpcCloseMemHandle(address);
  return error;
}

CUresult Imports::open(const CUipcMemHandle& untrusted_handle, uint32_t flags, uint32_t context,
                       uint32_t gpu, Opened* opened) {
  Import import;
  static_assert(sizeof(import.handle) == sizeof(untrusted_handle));
  std::memcpy(import.handle.data(), &untrusted_handle, sizeof(untrusted_handle));
  if (auto known = by_handle_.find(import.handle); known != by_handle_.end()) {
    Import& again = imports_.at(known->second);
    if (again.opens == UINT32_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
    ++again.opens;
    *opened = again.opened;
    return CUDA_SUCCESS;
  }
  if (count() >= limits::kImports) return CUDA_ERROR_OUT_OF_MEMORY;
  import.context = context;
  MemoryHandle handle;
  std::memcpy(static_cast<void*>(&handle), &untrusted_handle, sizeof(handle));
  CUresult error;
  if (handle.magic != kMemoryHandleMagic) {
    error = open_with_driver(flags, &import);
  } else {
    error = handle.proxy == map_.shares().proxy_id() ? open_here(handle, &import)
                                                     : open_there(handle, &import);
  }
  if (error != CUDA_SUCCESS) return error;
  Range range;
  range.base = import.opened.address;
  range.bytes = import.opened.bytes;
  range.kind = RangeKind::kOpened;
  range.device = import.opened.device;
  range.context = context;
  if (!reaches(gpu, import.opened.device)) {
    error = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  } else if (!ranges_.insert(range)) {
    error = CUDA_ERROR_MAP_FAILED;  // the driver put it where the client has something else
  }
  if (error != CUDA_SUCCESS) {
    give_back(import);
    return error;
  }
  *opened = import.opened;
  by_handle_[import.handle] = range.base;
  imports_.emplace(range.base, std::move(import));
  return CUDA_SUCCESS;
}

void Imports::give_back(Import& import) {
  switch (import.source) {
    case Source::kAlias: map_.shares().close(import.token); break;
    case Source::kSecondMapping:
      map_.drop_mapping(import.mapping);
      map_.shares().close(import.token);
      break;
    case Source::kOtherProxy:
      map_.release(import.block);
      import.lease.reset();
      break;
    case Source::kDriver: driver_.cuIpcCloseMemHandle(import.opened.address); break;
  }
}

CUresult Imports::close(uint64_t untrusted_address, uint32_t* left) {
  auto found = imports_.find(untrusted_address);
  if (found == imports_.end()) return CUDA_ERROR_INVALID_VALUE;
  *left = --found->second.opens;
  if (*left != 0) return CUDA_SUCCESS;
  ranges_.erase(untrusted_address);
  by_handle_.erase(found->second.handle);
  give_back(found->second);
  imports_.erase(found);
  return CUDA_SUCCESS;
}

void Imports::close_all(uint32_t context) {
  for (auto it = imports_.begin(); it != imports_.end();) {
    if (context != DeviceMemory::kAllContexts && it->second.context != context) {
      ++it;
      continue;
    }
    ranges_.erase(it->first);
    by_handle_.erase(it->second.handle);
    give_back(it->second);
    it = imports_.erase(it);
  }
}

}  // namespace tube::proxy

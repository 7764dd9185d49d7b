// Memory and semaphores of other APIs, by descriptors that the client sent. Only kinds that are a
// descriptor are forwarded: for all others the driver would follow a pointer of the client's.
//
// The driver owns a descriptor when it has taken it. A mapped buffer is a range of the client's
// (RangeKind::kExternal) until it is freed; the driver keeps the imported memory as long as
// something of it is mapped.
#include <cstring>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

struct ExternalMemoryState final : ObjectState {
  uint64_t bytes = 0;
};

const Object* find_memory(Session& session, uint64_t untrusted_id, uint64_t untrusted_offset,
                          uint64_t untrusted_bytes) {
  const Object* memory = session.objects().find(wire::Kind::kExternalMemory, untrusted_id);
  if (memory == nullptr) return nullptr;
  const uint64_t bytes = static_cast<const ExternalMemoryState&>(*memory->state).bytes;
  return untrusted_offset <= bytes && untrusted_bytes <= bytes - untrusted_offset ? memory
                                                                                  : nullptr;
}

// A struct that may hold a pointer, for semaphores of a kind that is never imported here.
template <class Params>
std::vector<Params> copy_params(std::span<const std::byte> untrusted) {
  std::vector<Params> params(untrusted.size() / sizeof(Params));
  std::memcpy(params.data(), untrusted.data(), params.size() * sizeof(Params));
  for (Params& p : params) p.params.nvSciSync.fence = nullptr;
  return params;
}

template <class Params, class Call>
CUresult semaphore_op(std::span<const std::byte> untrusted, std::vector<CUexternalSemaphore>& list,
                      Call call) {
  const std::vector<Params> params = copy_params<Params>(untrusted);
  if (params.size() != list.size()) return CUDA_ERROR_INVALID_VALUE;
  return call(list.data(), params.data(), static_cast<unsigned int>(list.size()));
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeImportExternalMemory>& call,
                Reply<wire::tubeImportExternalMemory>&) {
  UniqueFd fd = session.take_fd(call->token);
  const bool by_fd = call->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD ||
                     call->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD;
  if (!fd.valid() || !by_fd) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = session.objects().admit(wire::Kind::kExternalMemory, call->memory);
      error != CUDA_SUCCESS)
    return error;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc{};
  desc.type = static_cast<CUexternalMemoryHandleType>(call->type);
  desc.handle.fd = fd.get();
  desc.size = call->size;
  desc.flags = call->flags;
  CUexternalMemory memory = nullptr;
  const CUresult error = session.driver().cuImportExternalMemory(&memory, &desc);
  // The driver has closed a descriptor that turned out to be no memory, too (H200, 13.0), and the
  // number may be somebody else's by now.
  if (error == CUDA_SUCCESS || error == CUDA_ERROR_UNKNOWN) (void)fd.release();
  if (error != CUDA_SUCCESS) return error;
  auto state = std::make_unique<ExternalMemoryState>();
  state->bytes = call->size;
  return session.objects().insert(wire::Kind::kExternalMemory, call->memory,
                                  reinterpret_cast<uint64_t>(memory), session.record().context,
                                  std::move(state));
}

CUresult handle(Session& session, const Decoded<wire::tubeExternalBuffer>& call,
                Reply<wire::tubeExternalBuffer>& reply) {
  const Object* memory = find_memory(session, call->memory, call->offset, call->size);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC desc{};
  desc.offset = call->offset;
  desc.size = call->size;
  CUdeviceptr address = 0;
  if (CUresult error = session.driver().cuExternalMemoryGetMappedBuffer(
          &address, memory->handle<CUexternalMemory>(), &desc);
      error != CUDA_SUCCESS) {
    return error;
  }
  Range range;
  range.base = address;
  range.bytes = call->size;
  range.kind = RangeKind::kExternal;
  range.device = static_cast<int>(session.context()->gpu);
  range.context = session.context()->number;
  if (!session.ranges().insert(range)) {
    session.driver().cuMemFree_v2(address);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  reply->dptr = address;
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeExternalFree>& call,
                Reply<wire::tubeExternalFree>&) {
  const Range* range = session.ranges().at(call->dptr);
  if (range == nullptr || range->kind != RangeKind::kExternal) return CUDA_ERROR_INVALID_VALUE;
  session.ranges().erase(call->dptr);
  return session.driver().cuMemFree_v2(call->dptr);
}

void Session::free_external_buffers(uint32_t context) {
  std::vector<uint64_t> bases;
  for (const auto& [base, range] : ranges_.all()) {
    if (range.kind == RangeKind::kExternal &&
        (context == DeviceMemory::kAllContexts || range.context == context))
      bases.push_back(base);
  }
  for (uint64_t base : bases) {
    ranges_.erase(base);
    driver().cuMemFree_v2(base);
  }
}

CUresult handle(Session& session, const Decoded<wire::tubeExternalArray>& call,
                Reply<wire::tubeExternalArray>&) {
  const Object* memory = find_memory(session, call->memory, call->offset, 0);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = session.objects().admit(wire::Kind::kMipmappedArray, call->array);
      error != CUDA_SUCCESS)
    return error;
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC desc{};
  desc.offset = call->offset;
  desc.arrayDesc.Width = call->extent[0];
  desc.arrayDesc.Height = call->extent[1];
  desc.arrayDesc.Depth = call->extent[2];
  std::memcpy(&desc.arrayDesc.Format, &call->format,
              sizeof(call->format));  // may be no value of the enumeration
  desc.arrayDesc.NumChannels = call->channels;
  desc.arrayDesc.Flags = call->flags;
  desc.numLevels = call->levels;
  CUmipmappedArray array = nullptr;
  const CUresult error = session.driver().cuExternalMemoryGetMappedMipmappedArray(
      &array, memory->handle<CUexternalMemory>(), &desc);
  if (error != CUDA_SUCCESS) return error;
  return session.objects().insert(wire::Kind::kMipmappedArray, call->array,
                                  reinterpret_cast<uint64_t>(array), session.record().context);
}

CUresult handle(Session& session, const Decoded<wire::tubeDestroyExternal>& call,
                Reply<wire::tubeDestroyExternal>&) {
  return session.destroy_object(
      call->semaphore != 0 ? wire::Kind::kExternalSemaphore : wire::Kind::kExternalMemory,
      call->object);
}

CUresult handle(Session& session, const Decoded<wire::tubeImportExternalSemaphore>& call,
                Reply<wire::tubeImportExternalSemaphore>&) {
  UniqueFd fd = session.take_fd(call->token);
  const bool by_fd = call->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD ||
                     call->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  if (!fd.valid() || !by_fd) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = session.objects().admit(wire::Kind::kExternalSemaphore, call->semaphore);
      error != CUDA_SUCCESS)
    return error;
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc{};
  desc.type = static_cast<CUexternalSemaphoreHandleType>(call->type);
  desc.handle.fd = fd.get();
  desc.flags = call->flags;
  CUexternalSemaphore semaphore = nullptr;
  if (CUresult error = session.driver().cuImportExternalSemaphore(&semaphore, &desc);
      error != CUDA_SUCCESS)
    return error;
  (void)fd.release();
  return session.objects().insert(wire::Kind::kExternalSemaphore, call->semaphore,
                                  reinterpret_cast<uint64_t>(semaphore), session.record().context);
}

CUresult handle(Session& session, const Decoded<wire::tubeExternalSemaphores>& call,
                Reply<wire::tubeExternalSemaphores>&) {
  std::vector<CUexternalSemaphore> list;
  for (const uint64_t id : call.array<uint64_t>(call->semaphores)) {
    const Object* semaphore = session.objects().find(wire::Kind::kExternalSemaphore, id);
    if (semaphore == nullptr) return CUDA_ERROR_INVALID_VALUE;
    list.push_back(semaphore->handle<CUexternalSemaphore>());
  }
  if (list.empty()) return CUDA_ERROR_INVALID_VALUE;
  StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  const Driver& driver = session.driver();
  const auto params = call.blob(call->params);
  if (call->wait != 0) {
    return semaphore_op<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>(
        params, list, [&](auto* semaphores, auto* values, unsigned int count) {
          const CUresult error =
              driver.cuWaitExternalSemaphoresAsync(semaphores, values, count, op.stream);
          if (error == CUDA_SUCCESS)
            session.remember_external_wait(op, call.array<uint64_t>(call->semaphores),
                                           {values, count});
          return error;
        });
  }
  return semaphore_op<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>(
      params, list, [&](auto* semaphores, auto* values, unsigned int count) {
        return driver.cuSignalExternalSemaphoresAsync(semaphores, values, count, op.stream);
      });
}

}  // namespace tube::proxy

// The store's records (proxy/store/). Everything a client says here is checked against what the
// proxy knows that it holds; a record that lies ends the client.
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/scope_guard.h"
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/calls/handler_glue.h"
#include "proxy/gpu/current_context.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_map.h"
#include "proxy/session/session.h"

namespace tube::proxy {
namespace {

// nullptr: the client has not opened the store, and is ended for it.
StoreClient* store_of(Session& session) {
  StoreClient* client = session.store();
  if (client != nullptr && client->is_open()) return client;
  session.poison(abi::PoisonReason::kBadRecord, "it used the store without opening it");
  return nullptr;
}

CUresult believe(Session& session, bool truth, const char* lie) {
  if (!truth) session.poison(abi::PoisonReason::kBadRecord, lie);
  return CUDA_SUCCESS;
}

bool copy_text(std::span<const std::byte> untrusted, char* to, size_t room) {
  if (untrusted.size() >= room) return false;
  for (const std::byte c : untrusted) {
    if (c == std::byte{0}) return false;
  }
  if (!untrusted.empty()) std::memcpy(to, untrusted.data(), untrusted.size());
  return true;
}

// False: the request makes no sense.
bool describe(const Decoded<wire::tubeStoreReserve>& call, uint32_t gpus, StoreRequest* request) {
  abi::StoreBody& body = request->body;
  const auto name = call.blob(call->name);
  if (name.empty() || !copy_text(name, body.name, sizeof body.name) ||
      !copy_text(call.blob(call->group), body.group, sizeof body.group))
    return false;
  if (std::string_view(body.name).starts_with("//")) return false;  // other workflows' objects
  if (call->bytes == 0 || call->bytes > windows::kDeviceBytes || call->ndim > abi::kStoreDims ||
      call->ttl_ms > limits::kStoreLifeMs)
    return false;
  if (call->place == wire::StorePlace::kGpu && call->device >= gpus) return false;
  body.name_bytes = static_cast<uint32_t>(name.size());
  body.dtype = call->dtype;
  body.ndim = call->ndim;
  for (uint32_t i = 0; i < call->ndim; ++i) {
    body.shape[i] = static_cast<int64_t>(call->shape[i]);
    body.strides[i] = static_cast<int64_t>(call->strides[i]);
  }
  request->place = call->place;
  request->gpu = call->device;
  request->bytes = call->bytes;
  request->consumers = call->consumers;
  request->ttl_ms = call->ttl_ms;
  return true;
}

CUresult send(Session& session, int fd, uint64_t* token) {
  *token = session.next_fd_token();
  return session.give_fd(*token, fd).ok() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

// An event of the store's behind what the record's stream has, and what that waits for by the rules
// of the legacy stream, as an event of the client's would be; *made nullptr: there is none.
CUresult record_behind(Session& session, uint64_t untrusted_stream, uint32_t slot,
                       uint64_t generation, bool of_stream, CUevent* made, StoreStream* stream) {
  *made = nullptr;
  const StreamOp op = session.stream_op(untrusted_stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  *stream = {session.client().id, untrusted_stream, op.state->context};
  const CUevent event =
      session.store()->store().event_for(slot, generation, of_stream ? *stream : StoreStream{});
  if (event == nullptr) return CUDA_SUCCESS;
  const CUresult error = session.driver().cuEventRecord(event, op.stream);
  if (error == CUDA_SUCCESS) *made = event;
  return error;
}

// The client takes what it has sealed, and the seal is kept back behind its stream's work: what
// comes later on the record's stream stays behind that.
CUresult stay_behind_seal(Session& session, const Decoded<wire::tubeStoreOrder>& call) {
  const StreamOp op = session.stream_op(call->stream, StreamUse::kMarker);
  if (op.error != CUDA_SUCCESS) return op.error;
  ParkKeys keys;
  op.state->add_keys(keys, true);
  session.parked().hold(keys);
  session.behind_seals().emplace(call->slot, keys);
  session.come_again();
  return CUDA_SUCCESS;
}

void go_on_behind_seal(Session& session, uint32_t slot) {
  const auto [begin, end] = session.behind_seals().equal_range(slot);
  for (auto it = begin; it != end; ++it) session.parked().let_go(it->second);
  session.behind_seals().erase(begin, end);
}

// Memory for an object. Others' memory moves to the host only for one that can move, too: they
// could never come back.
template <class Take>
void take_room(Session& session, uint32_t gpu, uint64_t bytes, Take take) {
  if (session.store()->store().moves()) (void)session.take_memory(gpu, bytes, take);
  else (void)session.take_memory_at_last(gpu, bytes, take);
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeStoreOpen>&,
                Reply<wire::tubeStoreOpen>& reply) {
  StoreClient* client = session.open_store();
  if (client == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!client->is_open()) {
    if (Status opened = client->open(); !opened.ok()) {
      log_warn("the store cannot be opened: %s", opened.error().message.c_str());
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  CUresult error = send(session, client->index_fd(), &reply->index);
  if (error == CUDA_SUCCESS) error = send(session, client->pins_fd(), &reply->pins);
  if (const int host = client->host_fd(); error == CUDA_SUCCESS && host >= 0)
    error = send(session, host, &reply->host);
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreReserve>& call,
                Reply<wire::tubeStoreReserve>& reply) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  StoreRequest request;
  if (!describe(call, session.shared().gpus.count(), &request)) {
    reply->answer = static_cast<uint32_t>(wire::StoreAnswer::kInvalid);
    return CUDA_SUCCESS;
  }
  if (request.place == wire::StorePlace::kGpu) {
    if (CUresult error = session.contexts().make_current(request.gpu); error != CUDA_SUCCESS)
      return error;
    request.most_bytes = session.account().now(request.gpu).limit_bytes;
  }
  StoreGrant grant;
  const auto take = [&] {
    grant = client->reserve(request);
    const bool others = grant.answer == wire::StoreAnswer::kNoMemory && !grant.own_limit;
    return others ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  };
  if (request.place == wire::StorePlace::kGpu && request.bytes <= request.most_bytes)
    take_room(session, request.gpu, request.bytes, take);
  else (void)take();
  reply->answer = static_cast<uint32_t>(grant.answer);
  reply->slot = grant.slot;
  reply->generation = grant.generation;
  reply->address = grant.piece.address;
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreSeal>& call,
                Reply<wire::tubeStoreSeal>&) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  const bool own = client->seal(call->slot, call->generation, nullptr);
  go_on_behind_seal(session, call->slot);
  return believe(session, own, "it sealed an object that is not its own");
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreSealBehind>& call,
                Reply<wire::tubeStoreSealBehind>&) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  if (!client->makes(call->slot, call->generation))
    return believe(session, false, "it sealed an object that is not its own");
  CUevent written = nullptr;
  StoreStream on;
  const CUresult error =
      record_behind(session, call->stream, call->slot, call->generation, false, &written, &on);
  go_on_behind_seal(session, call->slot);
  // Without an event nobody could tell when the bytes are there: the object is given up.
  if (error != CUDA_SUCCESS || written == nullptr) {
    client->give_up(call->slot, call->generation);
    return error != CUDA_SUCCESS ? error : CUDA_ERROR_OUT_OF_MEMORY;
  }
  return believe(session, client->seal(call->slot, call->generation, written, on),
                 "it sealed an object twice");
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreClaim>& call,
                Reply<wire::tubeStoreClaim>&) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  return believe(session, client->claim(call->slot, call->generation),
                 "it claimed an object that it did not pin");
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreOrder>& call,
                Reply<wire::tubeStoreOrder>&) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  if (!client->holds(call->slot, call->generation))
    return believe(session, false, "it waits for an object that it does not hold");
  if (client->makes(call->slot, call->generation)) return stay_behind_seal(session, call);
  const CUevent written = client->store().written(call->slot, call->generation);
  if (written == nullptr) return CUDA_SUCCESS;
  const CUresult state = session.driver().cuEventQuery(written);
  if (state == CUDA_SUCCESS) {
    client->store().set_ready(call->slot, call->generation);
    return CUDA_SUCCESS;
  }
  const StreamOp op = session.stream_op(call->stream);
  if (op.error != CUDA_SUCCESS) return op.error;
  return session.driver().cuStreamWaitEvent(op.stream, written, 0);
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreReady>& call,
                Reply<wire::tubeStoreReady>& reply) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  if (!client->holds(call->slot, call->generation))
    return believe(session, false, "it waits for an object that it does not hold");
  if (client->makes(call->slot, call->generation)) return CUDA_SUCCESS;  // its seal is kept back
  const CUevent written = client->store().written(call->slot, call->generation);
  const CUresult state = written == nullptr ? CUDA_SUCCESS : session.driver().cuEventQuery(written);
  if (state == CUDA_ERROR_NOT_READY) return CUDA_SUCCESS;
  if (written != nullptr && state == CUDA_SUCCESS)
    client->store().set_ready(call->slot, call->generation);
  reply->ready = 1;
  return state;
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreRelease>& call,
                Reply<wire::tubeStoreRelease>&) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  return believe(session, client->release(call->slot, call->generation, call->last != 0),
                 "it released an object that it does not hold");
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreReleaseBehind>& call,
                Reply<wire::tubeStoreReleaseBehind>&) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  if (!client->holds(call->slot, call->generation))
    return believe(session, false, "it released an object that it does not hold");
  CUevent behind = nullptr;
  StoreStream on;
  const CUresult error =
      record_behind(session, call->stream, call->slot, call->generation, true, &behind, &on);
  if (behind == nullptr) client->keep(call->slot);
  (void)client->release(call->slot, call->generation, call->last != 0);
  return error;
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreLook>& call,
                Reply<wire::tubeStoreLook>&) {
  StoreClient* client = store_of(session);
  if (client != nullptr) client->store().look(call->slot);
  return CUDA_SUCCESS;
}

namespace {

// A copy that this client makes.
struct Making {
  uint32_t slot = 0;
  uint64_t generation = 0;
  int device = -1;  // where to
  int gpu = 0;      // whose stream it goes on
  Store::Copy copy;
  CUevent end = nullptr;  // the store's, once the copy is on a stream
};

// The copy is on the stream, or comes before what it has: an event stands behind it. An error:
// there is none, and the copy is nobody's.
CUresult copy_is_made(Session& session, Making& making, CUstream stream) {
  StoreClient* client = session.store();
  const CUevent event = client->store().event_for(making.slot, making.generation, {});
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult error = session.driver().cuEventRecord(event, stream);
  if (error != CUDA_SUCCESS) return error;
  making.end = event;
  client->made(making.slot, making.generation, making.device, event);
  return CUDA_SUCCESS;
}

// Of bytes that are there. `*in_lane`: the record's stream waits for the lane.
CUresult copy_now(Session& session, const StreamOp& op, Making& making, bool* in_lane) {
  const Store::Copy& copy = making.copy;
  const Range* from = session.ranges().covering(copy.from.address, copy.bytes);
  const Range* to = session.ranges().covering(copy.piece.address, copy.bytes);
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUstream stream = session.store()->store().streams().of_all(making.gpu);
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  // After a failure the client, which has the address by now, keeps the memory until it ends.
  const auto behind = [&session, making, stream](StreamState* waits, CUevent end) mutable {
    if (waits == nullptr) return;
    const CurrentContext current(
        session.driver(), session.shared().memory.context(static_cast<uint32_t>(making.gpu)));
    if (end == nullptr || session.driver().cuStreamWaitEvent(stream, end, 0) == CUDA_SUCCESS)
      (void)copy_is_made(session, making, stream);
  };
  const CUresult error =
      session.copies().issue({.kind = Copies::kind_of(*to, *from),
                              .stream = stream,
                              .state = op.state,
                              .dst = {.address = copy.piece.address, .range = to},
                              .src = {.address = copy.from.address, .range = from},
                              .bytes = copy.bytes,
                              .beside = true,
                              .behind = behind},
                             in_lane);
  if (error != CUDA_SUCCESS || *in_lane) return error;
  const CUresult made = copy_is_made(session, making, stream);
  if (made != CUDA_SUCCESS) (void)session.driver().cuStreamSynchronize(stream);
  return made;
}

// Between two GPUs, which need not reach each other, the driver has to be told whose the memory is.
CUresult copy_on(Session& session, const Store::Copy& copy, CUstream stream) {
  const int to = copy.piece.device, from = copy.from.device;
  if (to < 0 || from < 0)
    return session.driver().cuMemcpyAsync(copy.piece.address, copy.from.address, copy.bytes,
                                          stream);
  const MemoryMap& memory = session.shared().memory;
  return session.driver().cuMemcpyPeerAsync(
      copy.piece.address, memory.context(static_cast<uint32_t>(to)), copy.from.address,
      memory.context(static_cast<uint32_t>(from)), copy.bytes, stream);
}

// Of bytes whose maker's stream is not there yet, which may take as long as that likes: no lane,
// and no other copy behind it. CUDA_ERROR_NOT_READY: too many are waited for.
CUresult copy_later(Session& session, CUevent written, Making& making) {
  StoreStreams& streams = session.store()->store().streams();
  const CUstream stream = streams.of_seal(making.gpu, making.copy.sealed);
  if (stream == nullptr) return CUDA_ERROR_NOT_READY;
  const ScopeGuard done([&] { streams.done(making.gpu, stream); });
  CUresult error = session.driver().cuStreamWaitEvent(stream, written, 0);
  if (error == CUDA_SUCCESS) error = copy_on(session, making.copy, stream);
  if (error != CUDA_SUCCESS) return error;
  error = copy_is_made(session, making, stream);
  if (error != CUDA_SUCCESS) (void)session.driver().cuStreamSynchronize(stream);
  return error;
}

// Store::copy_in(), with memory as any call of the client's takes it.
Store::Copy place_copy(Session& session, uint32_t slot, uint64_t generation, int device) {
  const auto gpu = static_cast<uint32_t>(device);
  const uint64_t most = device < 0 ? 0 : session.account().now(gpu).limit_bytes;
  Store::Copy copy;
  const auto take = [&] {
    copy = session.store()->store().copy_in(slot, generation, device, most);
    return copy.answer == wire::StoreAnswer::kNoMemory ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  };
  if (take() != CUDA_SUCCESS && device >= 0 && copy.bytes <= most &&
      session.contexts().make_current(gpu) == CUDA_SUCCESS)
    take_room(session, gpu, copy.bytes, take);
  return copy;
}

// The object's bytes to `copy.piece`, behind those of the object. The copy is for all, so it stands
// behind nothing else, and what comes later on the record's stream behind it.
CUresult make_copy(Session& session, const StreamOp& op, Making& making) {
  StoreClient* client = session.store();
  const Store::Copy& copy = making.copy;
  client->making(making.slot, making.generation, copy.piece);
  const CUevent written = client->store().written(making.slot, making.generation);
  const bool there =
      written == nullptr || session.driver().cuEventQuery(written) != CUDA_ERROR_NOT_READY;
  making.gpu = making.device >= 0 ? making.device : copy.from.device;
  CUresult error = CUDA_ERROR_MAP_FAILED;
  bool in_lane = false;
  if (client->show_copy(making.slot, copy.piece.address, copy.bytes, making.device)) {
    const CurrentContext current(
        session.driver(), session.shared().memory.context(static_cast<uint32_t>(making.gpu)));
    error = there ? copy_now(session, op, making, &in_lane) : copy_later(session, written, making);
  }
  if (error == CUDA_SUCCESS) {
    if (in_lane || making.device < 0) return CUDA_SUCCESS;
    return session.driver().cuStreamWaitEvent(op.stream, making.end, 0);
  }
  client->hide_copy(making.slot, copy.piece.address);
  client->made(making.slot, making.generation, making.device, nullptr);
  return error;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeStoreFetch>& call,
                Reply<wire::tubeStoreFetch>& reply) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  if (!client->holds(call->slot, call->generation))
    return believe(session, false, "it fetched an object that it does not hold");
  if (client->makes(call->slot, call->generation)) {  // its seal is kept back
    reply->answer = static_cast<uint32_t>(wire::StoreAnswer::kBusy);
    return CUDA_SUCCESS;
  }
  const bool to_host = call->device == ~0u;
  if (!to_host && call->device >= session.shared().gpus.count()) return CUDA_ERROR_INVALID_DEVICE;
  const int device = to_host ? -1 : static_cast<int>(call->device);
  // For host memory the client's thread waits, and none of its streams.
  const StreamOp op =
      session.stream_op(call->stream, to_host ? StreamUse::kMarker : StreamUse::kWork);
  if (op.error != CUDA_SUCCESS) return op.error;
  Store& store = client->store();
  const Store::Copy copy = place_copy(session, call->slot, call->generation, device);
  if (copy.answer == wire::StoreAnswer::kNotFound) {
    Making making{call->slot, call->generation, device, 0, copy, nullptr};
    const CUresult error = make_copy(session, op, making);
    const bool busy = error == CUDA_ERROR_NOT_READY;
    if (error != CUDA_SUCCESS && !busy) return error;
    reply->answer = static_cast<uint32_t>(busy ? wire::StoreAnswer::kBusy : wire::StoreAnswer::kOk);
    reply->address = copy.piece.address;
    return CUDA_SUCCESS;
  }
  reply->answer = static_cast<uint32_t>(copy.answer);
  if (copy.answer != wire::StoreAnswer::kOk) return CUDA_SUCCESS;
  if (!client->show_copy(call->slot, copy.piece.address, copy.bytes, copy.piece.device))
    return CUDA_ERROR_MAP_FAILED;
  reply->address = copy.piece.address;
  const CUresult state =
      copy.written == nullptr ? CUDA_SUCCESS : session.driver().cuEventQuery(copy.written);
  if (state == CUDA_SUCCESS) {
    store.copy_is_ready(call->slot, call->generation, device);
    reply->ready = 1;
    return CUDA_SUCCESS;
  }
  if (state != CUDA_ERROR_NOT_READY) return state;
  return to_host ? CUDA_SUCCESS : session.driver().cuStreamWaitEvent(op.stream, copy.written, 0);
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreImport>& call,
                Reply<wire::tubeStoreImport>& reply) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  const StoreGrant grant = client->import(text(call.blob(call->name)));
  reply->answer = static_cast<uint32_t>(grant.answer);
  reply->slot = grant.slot;
  reply->generation = grant.generation;
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreImported>& call,
                Reply<wire::tubeStoreImported>&) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  return believe(session, client->drop_import(call->slot, call->generation),
                 "it is done with an object that it did not import");
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreExport>& call,
                Reply<wire::tubeStoreExport>& reply) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  if (!client->holds(call->slot, call->generation))
    return believe(session, false, "it exports an object that it does not hold");
  UniqueFd file;
  const CUresult error = client->store().export_memory(call->slot, call->generation, call->address,
                                                       &file, &reply->bytes, &reply->offset);
  return error == CUDA_SUCCESS ? send(session, file.get(), &reply->fd) : error;
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreQueue>& call,
                Reply<wire::tubeStoreQueue>&) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  std::vector<std::string> names;
  std::string name;
  for (const std::byte c : call.blob(call->names)) {
    if (c != std::byte{0}) {
      name.push_back(static_cast<char>(c));
      continue;
    }
    if (name.size() < abi::kStoreNameBytes && names.size() < limits::kStoreQueue)
      names.push_back(std::exchange(name, {}));
    else name.clear();
  }
  client->store().queue(names);
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreDelete>& call,
                Reply<wire::tubeStoreDelete>& reply) {
  StoreClient* client = store_of(session);
  if (client == nullptr) return CUDA_SUCCESS;
  const std::string name = text(call.blob(call->name));
  if (call->group != 0) {
    reply->count = client->store().remove_group(name);
    return CUDA_SUCCESS;
  }
  const wire::StoreAnswer answer = client->store().remove(name);
  reply->answer = static_cast<uint32_t>(answer);
  reply->count = answer == wire::StoreAnswer::kOk ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeStoreWaiting>& call,
                Reply<wire::tubeStoreWaiting>&) {
  StoreClient* client = store_of(session);
  if (client != nullptr) client->set_waiting(call->on != 0);
  return CUDA_SUCCESS;
}

}  // namespace tube::proxy

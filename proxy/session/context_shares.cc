#include "proxy/session/context_shares.h"

#include <utility>

#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/capture.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {

ContextShare::ContextShare(const Driver& driver, uint32_t number, uint32_t gpu, uint32_t flags)
    : number(number), gpu(gpu), flags(flags), order(driver) {}
ContextShare::~ContextShare() = default;

ContextShares::ContextShares(const Driver& driver, Gpus& gpus, Objects& objects, uint64_t session)
    : driver_(driver), gpus_(gpus), objects_(objects), session_(session), placement_(driver) {}
ContextShares::~ContextShares() = default;

void ContextShares::open() {
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu)
    shares_.try_emplace(primary_of(gpu), driver_, primary_of(gpu), gpu, 0u);
}

ContextShare* ContextShares::look_up(uint32_t untrusted_number) {
  auto found = shares_.find(untrusted_number);
  if (found == shares_.end()) return nullptr;
  last_ = &found->second;
  return last_;
}

CUresult ContextShares::create(uint32_t untrusted_number, uint32_t untrusted_gpu, uint32_t flags) {
  if (untrusted_number < wire::kFirstCreatedContext || untrusted_gpu >= gpus_.count())
    return CUDA_ERROR_INVALID_VALUE;
  if (shares_.size() >= limits::kContexts) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool made =
      shares_.try_emplace(untrusted_number, driver_, untrusted_number, untrusted_gpu, flags).second;
  return made ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void ContextShares::make_green(uint32_t number, CUgreenCtx green, CUcontext context) {
  ContextShare* share = find(number);
  share->green = green;
  share->driver_context = context;
}

void ContextShares::drop_green(ContextShare& share) {
  if (share.green == nullptr) return;
  (void)make_current(share.gpu);
  driver_.cuGreenCtxDestroy(share.green);
  share.green = nullptr;
  share.driver_context = nullptr;
}

void ContextShares::forget_limits(const ContextShare& share) {
  if (!share.limits.empty())
    gpus_[share.gpu].limits.forget(driver_, gpus_.gate(), session_, share.number);
}

void ContextShares::erase(uint32_t number, bool anew) {
  const ContextShare* share = find(number);
  if (share == nullptr) return;
  const uint32_t gpu = share->gpu;
  const uint32_t flags = share->flags;
  last_ = nullptr;
  shares_.erase(number);
  if (anew) shares_.try_emplace(number, driver_, number, gpu, flags);
}

CUresult ContextShares::switch_to(const Current& wanted) {
  if (wanted.gpu >= gpus_.count()) return CUDA_ERROR_INVALID_DEVICE;
  const CUresult error = driver_.cuCtxSetCurrent(
      wanted.context != nullptr ? wanted.context : gpus_[wanted.gpu].context);
  if (error != CUDA_SUCCESS) return error;
  current_ = wanted;
  gpu_.store(wanted.gpu, std::memory_order_relaxed);
  used_gpus_.fetch_or(1u << (wanted.gpu & 31), std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

// One of the share's own streams: the stand-in for the legacy one, or the one behind ended ones.
CUresult ContextShares::make_own(ContextShare& share, std::unique_ptr<StreamState>& own) {
  auto state = std::make_unique<StreamState>();
  if (CUresult error = make_current(share); error != CUDA_SUCCESS) return error;
  if (CUresult error = placement_.make_stream(share.gpu, share.own_sms(), *state);
      error != CUDA_SUCCESS)
    return error;
  state->context = share.number;
  state->legacy = &own == &share.legacy;
  if (!state->legacy) state->id = wire::kEndedStreams, state->flags = CU_STREAM_NON_BLOCKING;
  own = std::move(state);
  return CUDA_SUCCESS;
}

StreamState* ContextShares::stream(uint64_t untrusted_id, uint32_t record_context,
                                   CUresult* error) {
  *error = CUDA_SUCCESS;
  if (untrusted_id == wire::kLegacyStream) {
    ContextShare* share = of_record(record_context);
    if (share == nullptr) *error = CUDA_ERROR_INVALID_CONTEXT;
    if (*error == CUDA_SUCCESS && share->legacy == nullptr)
      *error = make_own(*share, share->legacy);
    return *error == CUDA_SUCCESS ? share->legacy.get() : nullptr;
  }
  Object* object = objects_.find(wire::Kind::kStream, untrusted_id);
  if (object == nullptr) {
    *error = CUDA_ERROR_INVALID_HANDLE;
    return nullptr;
  }
  return static_cast<StreamState*>(object->state.get());
}

StreamState* ContextShares::ended_streams(uint32_t record_context, CUresult* error) {
  ContextShare* share = of_record(record_context);
  *error = share == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  if (*error == CUDA_SUCCESS && share->ended == nullptr) *error = make_own(*share, share->ended);
  return *error == CUDA_SUCCESS ? share->ended.get() : nullptr;
}

CUresult ContextShares::enter_capture(StreamState& stream) {
  ContextShare* share = find(stream.context);
  if (share == nullptr || (captures() && is_capturing(driver_, stream.stream))) return CUDA_SUCCESS;
  return share->order.enter_capture(stream);
}

void ContextShares::move(StreamState& stream, const ContextShare& share,
                         const std::function<void()>& leaves) {
  if (make_current(share) != CUDA_SUCCESS) return;
  if (captures() && is_capturing(driver_, stream.stream)) return;
  placement_.move(share.gpu, share.own_sms(), stream, stream.attributes, leaves);
  if (Object* object = stream.legacy ? nullptr : objects_.find(wire::Kind::kStream, stream.id))
    object->raw = reinterpret_cast<uint64_t>(stream.stream);
}

void ContextShares::retire(StreamState& stream) {
  ContextShare* share = find(stream.context);
  if (share == nullptr) return;
  // A query would break a capture that it has joined, which goes on without it.
  const bool captured = captures() && is_capturing(driver_, stream.stream);
  const auto works = [&] {
    return captured ? share->order.works_behind_capture(stream)
                    : driver_.cuStreamQuery(stream.stream) == CUDA_ERROR_NOT_READY;
  };
  std::unique_ptr<StreamState>& heir = stream.blocking() ? share->legacy : share->ended;
  const bool inherits = (stream.blocking() && heir != nullptr) || works();
  if (inherits && heir == nullptr) (void)make_own(*share, heir);
  (void)share->order.retire(stream, inherits ? heir.get() : nullptr, captures());
}

void ContextShares::drop_own(ContextShare& share) {
  share.order.forget_left();
  for (std::unique_ptr<StreamState>* own : {&share.legacy, &share.ended}) {
    if (*own == nullptr) continue;
    const StreamState& stream = **own;
    for (CUevent event : {stream.join, stream.printed, stream.uploaded}) {
      if (event != nullptr) driver_.cuEventDestroy_v2(event);
    }
    driver_.cuStreamDestroy_v2(stream.stream);
    own->reset();
  }
}

void ContextShares::end_captures() {
  if (!captures()) return;
  for (uint64_t id : objects_.ids(wire::Kind::kStream)) {
    const CUstream stream = objects_.find(wire::Kind::kStream, id)->handle<CUstream>();
    if (!is_capturing(driver_, stream)) continue;
    CUgraph graph = nullptr;
    (void)driver_.cuStreamEndCapture(stream, &graph);
    if (graph != nullptr) driver_.cuGraphDestroy(graph);
  }
  captures_ = 0;
}

}  // namespace tube::proxy

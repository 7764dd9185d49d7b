#include "proxy/gpu/placement.h"

#include <cstring>
#include <utility>

#include "protocol/driver_table.gen.h"

namespace tube::proxy {

void Placement::use(GpuSlices* slices, const Client& client,
                    std::function<void(uint32_t gpu, bool is_apart)> apart) {
  slices_ = slices;
  client_ = client;
  apart_ = std::move(apart);
  if (slices_ != nullptr) slices_->join(client.session, client.sm_percent);
}

GpuPlace Placement::place_on(uint32_t gpu) {
  slices_->comes_to(gpu, client_.session);
  const GpuPlace place = slices_->place(gpu, client_.session);
  apart_(gpu, place.slice);
  return place;
}

CUresult Placement::make_in(const GpuPlace& place, int priority, CUstream* stream) {
  const int ours = policies::stream_priority(client_.priority, priority);
  if (place.green != nullptr)
    return driver_.cuGreenCtxStreamCreate(stream, place.green, CU_STREAM_NON_BLOCKING, ours);
  return driver_.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, ours);
}

CUresult copy_attributes(const Driver& driver, CUstream to, CUstream from) {
  for (const CUstreamAttrID id :
       {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN}) {
    CUstreamAttrValue value{}, old{};
    CUresult error = driver.cuStreamGetAttribute(from, id, &value);
    if (error == CUDA_SUCCESS) error = driver.cuStreamGetAttribute(to, id, &old);
    // What was never set may not be settable. (Both were all zero before they were filled.)
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    if (error == CUDA_SUCCESS && std::memcmp(&value, &old, sizeof value) != 0)
      error = driver.cuStreamSetAttribute(to, id, &value);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

// Always non-blocking: stream_order.h says why.
CUresult Placement::make_stream(uint32_t gpu, bool own_sms, PlacedStream& stream) {
  GpuPlace place;
  if (slices_ != nullptr && own_sms) place.version = slices_->version(gpu);
  else if (slices_ != nullptr) place = place_on(gpu);
  const CUresult error = make_in(place, stream.priority, &stream.stream);
  stream.green = place.green;
  stream.placed = place.version;
  stream.in_slice = place.slice;
  return error;
}

void Placement::move(uint32_t gpu, bool own_sms, PlacedStream& stream, bool attributes,
                     const std::function<void()>& leaves) {
  if (own_sms) {
    stream.placed = slices_->version(gpu);
    return;
  }
  const GpuPlace place = place_on(gpu);
  stream.placed = place.version;
  stream.in_slice = place.slice;
  if (place.green == stream.green) return;
  leaves();
  const CUresult state = driver_.cuStreamQuery(stream.stream);
  CUstream made = nullptr;
  if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) return;
  if (make_in(place, stream.priority, &made) != CUDA_SUCCESS) return;
  CUevent behind = nullptr;
  CUresult error = CUDA_SUCCESS;
  if (attributes) error = copy_attributes(driver_, made, stream.stream);
  if (error == CUDA_SUCCESS && state == CUDA_ERROR_NOT_READY) {
    error = driver_.cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING);
    if (error == CUDA_SUCCESS) error = driver_.cuEventRecord(behind, stream.stream);
    if (error == CUDA_SUCCESS) error = driver_.cuStreamWaitEvent(made, behind, 0);
    if (behind != nullptr) (void)driver_.cuEventDestroy_v2(behind);
  }
  if (error == CUDA_SUCCESS) {
    std::swap(made, stream.stream);
    stream.green = place.green;
  }
  (void)driver_.cuStreamDestroy_v2(made);  // its work goes on
}

CUcontext Placement::part_context(uint32_t gpu) const {
  if (!has_parts(gpu)) return nullptr;
  const GpuPlace place = slices_->place(gpu, client_.session);
  CUcontext context = nullptr;
  if (place.green == nullptr || driver_.cuCtxFromGreenCtx(&context, place.green) != CUDA_SUCCESS)
    return nullptr;
  return context;
}

void Placement::leave() {
  if (slices_ != nullptr) std::exchange(slices_, nullptr)->leave(client_.session);
}

}  // namespace tube::proxy

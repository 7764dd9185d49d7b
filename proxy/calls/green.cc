// Green contexts: parts of a GPU's SMs, and contexts whose work runs on such a part.
//
// They are real ones of the shared primary context, so a client's green contexts keep other
// functions off their SMs as little as natively: two functions that take the same part share it.
// What the driver calls a resource stays here; the client holds its number and the three counts
// that it may read. A green context is a context share (session.h) with a driver context of its
// own, which is current while records of the share are executed.
#include <algorithm>
#include <span>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

constexpr uint32_t kMaxGroups = 256;

// The resource's number; 0 at the limit. A server that divides its GPU for each request asks for
// the same parts again and again.
uint64_t keep_resource(Session& session, const CUdevResource& resource) {
  std::vector<CUdevResource>& kept = session.dev_resources().resources;
  const auto bytes_of = [](const CUdevResource& r) { return std::as_bytes(std::span(&r, 1)); };
  const auto equal = std::find_if(kept.begin(), kept.end(), [&](const CUdevResource& known) {
    return std::ranges::equal(bytes_of(known), bytes_of(resource));
  });
  if (equal != kept.end()) return static_cast<uint64_t>(equal - kept.begin()) + 1;
  if (kept.size() >= limits::kDevResources) return 0;
  kept.push_back(resource);
  return kept.size();
}

const CUdevResource* find_resource(Session& session, uint64_t untrusted_number) {
  const std::vector<CUdevResource>& kept = session.dev_resources().resources;
  return untrusted_number == 0 || untrusted_number > kept.size() ? nullptr
                                                                 : &kept[untrusted_number - 1];
}

void copy_counts(const CUdevResource& resource, uint32_t (&sms)[3]) {
  const bool is_sm = resource.type == CU_DEV_RESOURCE_TYPE_SM;
  sms[0] = is_sm ? resource.sm.smCount : 0;
  sms[1] = is_sm ? resource.sm.minSmPartitionSize : 0;
  sms[2] = is_sm ? resource.sm.smCoscheduledAlignment : 0;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeGetResource>& call,
                Reply<wire::tubeGetResource>& reply) {
  const Driver& driver = session.driver();
  Gpus& gpus = session.shared().gpus;
  const auto type = static_cast<CUdevResourceType>(call->type);
  CUdevResource resource{};
  CUresult error = CUDA_ERROR_INVALID_VALUE;
  if (call->source == wire::ResourceOf::kDevice) {
    if (call->number >= gpus.count()) return CUDA_ERROR_INVALID_DEVICE;
    error = driver.cuDeviceGetDevResource(gpus[call->number].device, &resource, type);
  } else {
    const ContextShare* share = session.context(call->number);
    if (share == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    error = share->green != nullptr
                ? driver.cuGreenCtxGetDevResource(share->green, &resource, type)
                : driver.cuCtxGetDevResource(gpus[share->gpu].context, &resource, type);
  }
  if (error != CUDA_SUCCESS) return error;
  copy_counts(resource, reply->sms);
  reply->resource = keep_resource(session, resource);
  return reply->resource != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult handle(Session& session, const Decoded<wire::tubeSplitResource>& call,
                Reply<wire::tubeSplitResource>& reply) {
  const CUdevResource* known = find_resource(session, call->resource);
  if (known == nullptr) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const CUdevResource input = *known;
  unsigned int groups = std::min(call->groups, kMaxGroups);
  std::vector<CUdevResource> parts(groups + 1);  // the remaining one behind them
  CUresult error = session.driver().cuDevSmResourceSplitByCount(
      groups != 0 ? parts.data() : nullptr, &groups, &input, &parts.back(), call->flags,
      call->minimum);
  if (error != CUDA_SUCCESS) return error;
  reply->groups = groups;
  if (call->groups == 0) return CUDA_SUCCESS;
  if (groups >= parts.size()) return CUDA_ERROR_UNKNOWN;  // more than it was given room for
  parts[groups] = parts.back();
  std::vector<wire::SmPart> wire_parts(groups + 1);
  for (uint32_t i = 0; i <= groups; ++i) {
    copy_counts(parts[i], wire_parts[i].sms);
    if (parts[i].type == CU_DEV_RESOURCE_TYPE_INVALID) continue;  // nothing remains
    wire_parts[i].resource = keep_resource(session, parts[i]);
    if (wire_parts[i].resource == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return reply.put(&wire::tubeSplitResource_reply::parts, std::as_bytes(std::span(wire_parts)))
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult handle(Session& session, const Decoded<wire::tubeResourceDescription>& call,
                Reply<wire::tubeResourceDescription>& reply) {
  const auto numbers = call.array<uint64_t>(call->resources);
  std::vector<DevResources::Description>& kept = session.dev_resources().descriptions;
  if (numbers.size() > kMaxGroups) return CUDA_ERROR_INVALID_VALUE;
  const auto equal = std::find_if(kept.begin(), kept.end(), [&](const auto& known) {
    return std::ranges::equal(known.resources, numbers);
  });
  if (equal != kept.end()) {
    reply->description = static_cast<uint64_t>(equal - kept.begin()) + 1;
    return CUDA_SUCCESS;
  }
  if (kept.size() >= limits::kDevResources) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<CUdevResource> resources;
  for (uint64_t number : numbers) {
    const CUdevResource* resource = find_resource(session, number);
    if (resource == nullptr) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    resources.push_back(*resource);
  }
  CUdevResourceDesc description = nullptr;
  CUresult error = session.driver().cuDevResourceGenerateDesc(
      &description, resources.data(), static_cast<unsigned int>(resources.size()));
  if (error != CUDA_SUCCESS) return error;
  kept.push_back({{numbers.begin(), numbers.end()}, description});
  reply->description = kept.size();
  return CUDA_SUCCESS;
}

CUresult handle(Session& session, const Decoded<wire::tubeGreenContextCreate>& call,
                Reply<wire::tubeGreenContextCreate>&) {
  const Driver& driver = session.driver();
  const std::vector<DevResources::Description>& kept = session.dev_resources().descriptions;
  if (call->description > kept.size()) return CUDA_ERROR_INVALID_VALUE;
  const CUdevResourceDesc description =
      call->description == 0 ? nullptr : kept[call->description - 1].handle;
  if (CUresult error = session.contexts().create(call->number, call->device, 0);
      error != CUDA_SUCCESS)
    return error;
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
  CUresult error = driver.cuGreenCtxCreate(&green, description,
                                           session.shared().gpus[call->device].device, call->flags);
  if (error == CUDA_SUCCESS) error = driver.cuCtxFromGreenCtx(&context, green);
  if (error != CUDA_SUCCESS) {
    if (green != nullptr) driver.cuGreenCtxDestroy(green);
    session.sweep_context(call->number, true);
    return error;
  }
  session.contexts().make_green(call->number, green, context);
  return CUDA_SUCCESS;
}

}  // namespace tube::proxy

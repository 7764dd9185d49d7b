// The driver's linker (cuLink*), run here in one go: the client collected its inputs in one file
// and gets the image back in another.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "base/log.h"
#include "image/fatbin.h"
#include "protocol/driver_table.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/code/image_store.h"
#include "proxy/code/image_trials.h"
#include "proxy/code/jit_options.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"
#include "sharedmem/segment.h"

namespace tube::proxy {

namespace {

std::span<const std::byte> names_in(const Image& inputs, uint64_t untrusted_at) {
  return std::span(inputs.data(), inputs.size()).subspan(std::min(untrusted_at, inputs.size()));
}

CUresult add_inputs(Session& session, const Decoded<wire::tubeLink>& call, const Image& inputs,
                    CUlinkState link) {
  const auto names = names_in(inputs, call->names_at);
  size_t name_at = 0;
  for (const wire::LinkInput& input : call.array<wire::LinkInput>(call->inputs)) {
    if (input.type >= CU_JIT_NUM_INPUT_TYPES || input.offset > inputs.size() ||
        input.size_bytes > inputs.size() - input.offset ||
        input.name_bytes > names.size() - name_at) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (image::is_endless(inputs.data() + input.offset, input.size_bytes))
      return CUDA_ERROR_INVALID_IMAGE;
    const std::string name(reinterpret_cast<const char*>(names.data()) + name_at, input.name_bytes);
    name_at += input.name_bytes;
    CUresult error = session.driver().cuLinkAddData_v2(
        link, static_cast<CUjitInputType>(input.type), inputs.data() + input.offset,
        input.size_bytes, name.c_str(), 0, nullptr, nullptr);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

CUresult finish(Session& session, CUlinkState link, Reply<wire::tubeLink>& reply) {
  void* image = nullptr;
  size_t bytes = 0;
  if (CUresult error = session.driver().cuLinkComplete(link, &image, &bytes); error != CUDA_SUCCESS)
    return error;
  if (bytes == 0) return CUDA_SUCCESS;  // of no inputs
  Result<UniqueFd> file = shared::create_constant_file("tube-linked", image, bytes);
  if (!file.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  reply->token = session.next_fd_token();
  reply->size = bytes;
  return session.give_fd(reply->token, file->get()).ok() ? CUDA_SUCCESS
                                                         : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace

CUresult handle(Session& session, const Decoded<wire::tubeLink>& call,
                Reply<wire::tubeLink>& reply) {
  UniqueFd fd = session.take_fd(call->token);
  if (!fd.valid()) return CUDA_ERROR_INVALID_VALUE;
  // Read and copied like a module's image, for the same reason: the file is the client's.
  uint64_t read_bytes = 0;
  Result<std::shared_ptr<const Image>> inputs =
      session.shared().images.from_fd(fd.get(), 0, call->size, {}, &read_bytes);
  Stats::add(session.stats().image_bytes, read_bytes);
  if (!inputs.ok()) return static_cast<CUresult>(inputs.error().code);
  JitOptions jit;
  CUresult error =
      jit.build(call.array<uint32_t>(call->jit_options), call.array<uint64_t>(call->jit_values),
                call->info_log_bytes, call->error_log_bytes);
  if (error != CUDA_SUCCESS) return error;
  const Gpu& gpu = session.shared().gpus[session.context()->gpu];
  error = try_image({.image = *inputs,
                     .ordinal = gpu.ordinal,
                     .jit_options = call.array<uint32_t>(call->jit_options),
                     .jit_values = call.array<uint64_t>(call->jit_values),
                     .links = true,
                     .inputs = call.array<wire::LinkInput>(call->inputs),
                     .names = names_in(**inputs, call->names_at)},
                    session.client().name, [&session] { return session.stopping(); });
  if (error != CUDA_SUCCESS) return error;
  CUlinkState link = nullptr;
  error = session.driver().cuLinkCreate_v2(jit.count(), jit.options(), jit.values(), &link);
  if (error != CUDA_SUCCESS) return error;
  error = add_inputs(session, call, **inputs, link);
  if (error == CUDA_SUCCESS) error = finish(session, link, reply);
  jit.answer<wire::tubeLink_reply>(reply);
  session.driver().cuLinkDestroy(link);
  return error;
}

}  // namespace tube::proxy

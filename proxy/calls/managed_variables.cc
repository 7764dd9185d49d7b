#include "proxy/calls/managed_variables.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "image/managed_code.h"
#include "protocol/driver_table.gen.h"
#include "proxy/code/jit_options.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"

namespace tube::proxy {

namespace {

constexpr uint64_t kAlignment = 256;  // what the driver gives any allocation

// PTX to machine code of the current context's GPU.
CUresult compile(Session& session, JitOptions& jit, std::string* bytes) {
  const Driver& driver = session.driver();
  CUlinkState link = nullptr;
  CUresult error = driver.cuLinkCreate_v2(jit.count(), jit.options(), jit.values(), &link);
  if (error != CUDA_SUCCESS) return error;
  bytes->resize(strnlen(bytes->data(), bytes->size()) + 1, '\0');  // the text's NUL belongs to it
  error = driver.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, bytes->data(), bytes->size(), "managed",
                                  0, nullptr, nullptr);
  void* image = nullptr;
  size_t size = 0;
  if (error == CUDA_SUCCESS) error = driver.cuLinkComplete(link, &image, &size);
  if (error == CUDA_SUCCESS) bytes->assign(static_cast<const char*>(image), size);
  driver.cuLinkDestroy(link);
  return error;
}

// One piece of the slot for all of them. False: more than a client may have.
bool arrange(const std::vector<image::ManagedVariable>& variables, std::vector<uint64_t>* offsets,
             uint64_t* total) {
  *total = 0;
  for (const image::ManagedVariable& v : variables) {
    if (v.bytes > limits::kPinnedBytes || *total > limits::kPinnedBytes) return false;
    offsets->push_back(*total);
    *total += (v.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return true;
}

void fill(std::string_view image, const std::vector<image::ManagedVariable>& variables,
          const std::vector<uint64_t>& addresses) {
  for (size_t i = 0; i < variables.size(); ++i) {
    auto* const to = reinterpret_cast<std::byte*>(addresses[i]);
    if (variables[i].initial == 0) {
      std::memset(to, 0, variables[i].bytes);
    } else {
      std::memcpy(to, image.data() + variables[i].initial,
                  variables[i].bytes);  // inside: managed_variables() looked
    }
  }
}

// What modules left behind that were unloaded while their kernels may have run.
void reuse_left(Session& session) {
  std::vector<uint64_t>& left = session.left_variables();
  if (left.empty() || session.captures() || !session.wait_idle(0))
    return;  // a stream that captures answers no query
  for (const uint64_t storage : left) (void)session.pinned().free(storage);
  left.clear();
}

CUresult place(Session& session, std::string& code,
               const std::vector<image::ManagedVariable>& variables, PlacedImage* out) {
  std::vector<uint64_t> addresses;
  uint64_t total = 0;
  if (!arrange(variables, &addresses, &total)) return CUDA_ERROR_OUT_OF_MEMORY;
  reuse_left(session);
  const uint32_t context = 0;  // they end with their module, whatever becomes of a context
  if (CUresult error = session.pinned().allocate(context, total, &out->placed.storage);
      error != CUDA_SUCCESS)
    return error;
  for (uint64_t& address : addresses) address += out->placed.storage;
  std::string why;
  std::shared_ptr<Image> image = Image::make(code.size(), session.shared().images.host());
  if (image == nullptr ||
      !image::place_managed(std::as_writable_bytes(std::span(code)), variables, addresses, &why)) {
    if (image != nullptr)
      log_warn("function '%s': its managed variables stay the GPU's own: %s",
               session.client().name.c_str(), why.c_str());
    session.leave_variables(out->placed.storage);
    out->placed = {};
    return image == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  }
  fill(code, variables, addresses);
  std::memcpy(image->data(), code.data(), code.size());
  for (size_t i = 0; i < variables.size(); ++i)
    out->placed.variables.push_back({variables[i].name, addresses[i], variables[i].bytes});
  out->image = std::move(image);
  return CUDA_SUCCESS;
}

}  // namespace

const PlacedVariable* find(const PlacedVariables& placed, const std::string& name) {
  const auto found = std::find_if(placed.variables.begin(), placed.variables.end(),
                                  [&](const PlacedVariable& v) { return v.name == name; });
  return found == placed.variables.end() ? nullptr : &*found;
}

CUresult place_variables(Session& session, const Image& image, Form form, bool for_all_gpus,
                         JitOptions& jit, PlacedImage* out) {
  const auto capabilities = session.shared().gpus.capabilities();
  if (!image.managed(capabilities)) return CUDA_SUCCESS;
  const int capability = capabilities[session.context()->gpu];
  if (for_all_gpus && std::any_of(capabilities.begin(), capabilities.end(),
                                  [=](int other) { return other != capability; })) {
    log_warn("function '%s': its managed variables stay the GPUs' own: the GPUs differ",
             session.client().name.c_str());
    return CUDA_SUCCESS;
  }
  std::string code = select_code({image.data(), image.size()}, capability, form);
  if (code.empty()) return CUDA_SUCCESS;
  if (form == Form::kPtx) {
    if (CUresult error = compile(session, jit, &code); error != CUDA_SUCCESS) return error;
  }
  const std::vector<image::ManagedVariable> variables =
      image::managed_variables(std::as_bytes(std::span(code)));
  return variables.empty() ? CUDA_SUCCESS : place(session, code, variables, out);
}

}  // namespace tube::proxy

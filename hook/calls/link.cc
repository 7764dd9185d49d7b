// The linker: inputs are gathered here and cuLinkComplete is one message, because the driver's
// linker must run where the GPU is. The linked image comes back in a file that stays mapped until
// the program destroys the link.
//
// An input that the driver would refuse at once is therefore reported by cuLinkComplete, with the
// log texts.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/mapping.h"
#include "hook/code/image_size.h"
#include "hook/objects/kernels.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"
#include "sharedmem/segment.h"

namespace tube::hook {
namespace {

constexpr size_t kMaxInputs = 512;

struct Link {
  Slot* slot = nullptr;
  JitOptions options;
  std::vector<wire::LinkInput> inputs;
  std::string names;  // of all inputs, one behind the other
  std::string bytes;  // all inputs, each 16-aligned
  Mapping image;
};

Link* find_link(CUlinkState state) {
  Slot* slot = objects().find(Kind::kLink, state);
  return slot == nullptr ? nullptr : static_cast<Link*>(slot->object);
}

CUresult add(Link* link, CUjitInputType type, const void* data, size_t size, const char* name) {
  if (link->inputs.size() >= kMaxInputs) return CUDA_ERROR_NOT_SUPPORTED;
  wire::LinkInput input{};
  input.type = static_cast<uint32_t>(type);
  link->bytes.resize((link->bytes.size() + 15) & ~size_t{15});
  input.offset = link->bytes.size();
  link->bytes.append(static_cast<const char*>(data), size);
  if (type == CU_JIT_INPUT_PTX && (size == 0 || link->bytes.back() != 0)) {
    link->bytes.push_back(0);  // PTX is text; the driver wants its end
    ++size;
  }
  input.size_bytes = size;
  input.name_bytes = static_cast<uint32_t>(name == nullptr ? 0 : std::strlen(name));
  if (name != nullptr) link->names += name;
  link->inputs.push_back(input);
  return CUDA_SUCCESS;
}

CUresult send_link(Link* link, int file, uint64_t file_bytes, wire::tubeLink_reply* reply) {
  ReplyBlobs blobs;
  const uint32_t options = link->options.count();
  const auto inputs = static_cast<uint32_t>(link->inputs.size() * sizeof(wire::LinkInput));
  CUresult result;
  {
    Request<wire::tubeLink> r(blob_room(options * 4) + blob_room(options * 8) + blob_room(inputs));
    r->size = file_bytes;
    r->names_at = link->bytes.size();
    r->info_log_bytes = link->options.info_log_bytes();
    r->error_log_bytes = link->options.error_log_bytes();
    r.put(&wire::tubeLink::jit_options, link->options.ids(), options * 4);
    r.put(&wire::tubeLink::jit_values, link->options.values(), options * 8);
    r.put(&wire::tubeLink::inputs, link->inputs.data(), inputs);
    r.send_file(file, &r->token, CUDA_ERROR_OPERATING_SYSTEM);
    result = r.call(reply, &blobs);
  }
  link->options.give_back(blobs.get(reply->info_log), blobs.get(reply->error_log),
                          blobs.get(reply->jit_values));
  return result;
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  if (stateOut == nullptr || (numOptions != 0 && (options == nullptr || optionValues == nullptr)))
    return CUDA_ERROR_INVALID_VALUE;
  auto* link = new (std::nothrow) Link;
  Slot* slot = objects().allocate(Kind::kLink);
  if (link == nullptr || slot == nullptr ||
      !link->options.parse(numOptions, options, optionValues)) {
    delete link;
    return slot == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
  }
  slot->object = link;
  link->slot = slot;
  objects().publish(slot);
  *stateOut = static_cast<CUlinkState>(objects().handle_of(slot));
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int, CUjit_option*, void**) {
  Link* link = find_link(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (data == nullptr || size == 0 || type >= CU_JIT_NUM_INPUT_TYPES)
    return CUDA_ERROR_INVALID_VALUE;
  // PTX is looked at when all is linked; what is none at all natively shows here.
  if (type == CU_JIT_INPUT_PTX && memmem(data, size, ".version", 8) == nullptr)
    return CUDA_ERROR_INVALID_IMAGE;
  return add(link, type, data, size, name);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int,
                          CUjit_option*, void**) {
  Link* link = find_link(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (path == nullptr || type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  const UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  struct stat s;
  if (!fd.valid() || fstat(fd.get(), &s) != 0 || s.st_size <= 0) return CUDA_ERROR_FILE_NOT_FOUND;
  Result<Mapping> file = Mapping::map(fd.get(), 0, static_cast<uint64_t>(s.st_size), PROT_READ);
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  return add(link, type, file->data(), static_cast<size_t>(s.st_size), path);
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  Link* link = find_link(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The names are behind the inputs, since they can be more than a record holds.
  const size_t names_at = link->bytes.size();
  link->bytes += link->names;
  if (link->bytes.empty()) link->bytes.push_back(0);  // no inputs: no file is empty
  const size_t file_bytes = link->bytes.size();
  Result<UniqueFd> file = shared::create_constant_file("tube-link", link->bytes.data(), file_bytes);
  link->bytes.resize(names_at);
  if (!file) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::tubeLink_reply reply{};
  if (const CUresult r = send_link(link, file->get(), file_bytes, &reply); r != CUDA_SUCCESS)
    return r;
  if (reply.size == 0) {
    *cubinOut = nullptr;
    if (sizeOut != nullptr) *sizeOut = 0;
    return CUDA_SUCCESS;
  }
  Result<UniqueFd> image = take_file(reply.token);
  if (!image) return CUDA_ERROR_OPERATING_SYSTEM;
  Result<Mapping> mapped = Mapping::map(image->get(), 0, reply.size, PROT_READ);
  if (!mapped) return CUDA_ERROR_OUT_OF_MEMORY;
  link->image = mapped.take();
  *cubinOut = link->image.data();
  if (sizeOut != nullptr) *sizeOut = reply.size;
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  Link* link = find_link(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Slot* slot = link->slot;
  slot->object = nullptr;
  if (!objects().remove(slot)) return CUDA_ERROR_INVALID_HANDLE;
  delete link;
  return CUDA_SUCCESS;
}

}  // namespace tube::hook

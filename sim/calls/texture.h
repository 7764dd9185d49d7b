// Texture and surface objects: handles that kernels hold. The registry has a lock of its own (a
// leaf), because kernels look handles up while they run.
#pragma once

#include <cstdint>
#include <memory>

#include "sim/machine/state.h"
#include "sim/ptx/texture.h"

namespace tube::sim {

// What a handle means to a kernel of the context, nullptr when it names none. Any thread.
std::shared_ptr<const ptx::Texture> find_texture(Context* context, uint64_t handle);
// The objects of a context that ends.
void forget_textures(const Context* context);

}  // namespace tube::sim

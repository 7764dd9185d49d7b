// The managed variables of a client's module: they live in the client's pinned slot, where the
// program and the GPU have the same address, as all managed memory does here.
//
// The driver would place them in managed memory of this process, which the program's process cannot
// reach. So the code that the GPU would take is chosen here (PTX is compiled with the driver's
// linker first), its references to the variables are filled with addresses in the slot
// (image/managed_code.h), and the driver loads that. Costs images without managed variables nothing
// but one look at their symbols. Session thread only; docs/decisions/0007.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/cuda_api.h"
#include "proxy/code/image_scan.h"
#include "proxy/code/image_store.h"
#include "proxy/session/module_state.h"

namespace tube::proxy {

class JitOptions;
class Session;

// The variable of that name, or nullptr.
const PlacedVariable* find(const PlacedVariables& placed, const std::string& name);

struct PlacedImage {
  std::shared_ptr<const Image>
      image;  // what the driver is to load; nullptr: the program's image as it is
  PlacedVariables placed;
};

// `for_all_gpus`: the image may be loaded on each GPU of this proxy (a library). SUCCESS without an
// image: there is nothing of that form to place, or it cannot be (said in the log). Other codes:
// the load fails with it.
CUresult place_variables(Session& session, const Image& image, Form form, bool for_all_gpus,
                         JitOptions& jit, PlacedImage* out);

}  // namespace tube::proxy

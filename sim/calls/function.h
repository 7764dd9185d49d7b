// Attributes and limits of one function, shared by cuFunc*, cuKernel*, launches and occupancy.
#pragma once

#include "sim/machine/attributes.h"
#include "sim/machine/state.h"

namespace tube::sim {

CUresult get_function_attribute(const Function& f, const Device& device,
                                CUfunction_attribute attribute, int* value);
CUresult set_function_attribute(Function& f, const Device& device, CUfunction_attribute attribute,
                                int value);
CUresult get_param_info(const Function& f, size_t index, size_t* offset, size_t* size);

uint32_t registers_of(const ptx::Kernel& kernel);
uint32_t max_threads_of(const ptx::Kernel& kernel);
// Dynamic shared memory a launch may ask for.
uint32_t max_dynamic_shared(const Function& f, const Device& device);

}  // namespace tube::sim

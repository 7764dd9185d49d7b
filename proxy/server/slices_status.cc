#include "proxy/server/slices_status.h"

#include <nlohmann/json.hpp>

#include "proxy/gpu/gpu_slices.h"

namespace tube::proxy {

using nlohmann::json;

json gpu_slices_json(const GpuSlices& slices, uint32_t gpu) {
  json out = {{"function", nullptr}, {"made", slices.made(gpu)}};
  const auto held = slices.held(gpu);
  if (!held) return out;
  out["function"] = held->session;
  out["multiprocessors"] = held->multiprocessors;
  out["others"] = held->others;
  return out;
}

json function_slices_json(const GpuSlices& slices, uint64_t session) {
  json out = json::array();
  for (uint32_t gpu = 0; gpu < slices.gpus(); ++gpu) {
    const auto held = slices.held(gpu);
    if (held && held->session == session)
      out.push_back({{"gpu", gpu}, {"multiprocessors", held->multiprocessors}});
  }
  return out;
}

}  // namespace tube::proxy

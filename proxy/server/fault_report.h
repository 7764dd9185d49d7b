// Who ended a context, in one line: what every function of the proxy, its log and its operator are
// told.
//
// The driver says that a kernel of the context did something wrong, not which. Suspects are the
// functions with kernels that are not known to be over (launch/launch_notes.h): with one of them
// the author is known, with several all are named. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tube::proxy {

struct Suspect {
  std::string function;
  int pid = 0;
  std::vector<std::string> kernels;  // as the driver names them, the newest first
  bool reported = false;             // a call of this function found the context dead
};

struct Fault {
  uint32_t gpu = 0;
  std::string workflow;
  std::string error;     // CUDA_ERROR_ILLEGAL_ADDRESS (700)
  std::string reporter;  // function `f` (pid 1)
  std::vector<Suspect> suspects;
};

// Below abi::kFaultTextBytes, without a newline.
std::string fault_text(const Fault& fault);
nlohmann::json fault_json(const Fault& fault);

}  // namespace tube::proxy

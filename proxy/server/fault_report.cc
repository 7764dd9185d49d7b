#include "proxy/server/fault_report.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include <nlohmann/json.hpp>

#include "sharedmem/abi.h"

namespace tube::proxy {
namespace {

constexpr size_t kMostSuspects = 3, kMostName = 72;

// As its author wrote it, without what its parameters are. (A name that is not mangled may be a
// type's: `b` is a bool's.)
std::string kernel_name(const std::string& mangled) {
  int status = mangled.starts_with("_Z") ? 0 : -1;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      status == 0 ? ::abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status) : nullptr,
      &std::free);
  std::string name = status == 0 ? plain.get() : mangled;
  if (status == 0) name = name.substr(0, name.rfind('('));
  return name.size() <= kMostName ? name : name.substr(0, kMostName - 2) + "..";
}

std::string kernels_text(const std::vector<std::string>& kernels) {
  std::string text;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (i != 0) text += i + 1 == kernels.size() ? " or " : ", ";
    text += kernels[i].find(' ') == std::string::npos ? "kernel `" + kernel_name(kernels[i]) + "`"
                                                      : kernels[i];
  }
  return text;
}

std::string suspect_text(const Suspect& suspect) {
  return kernels_text(suspect.kernels) + " of function `" + suspect.function + "` (pid " +
         std::to_string(suspect.pid) + ")";
}

}  // namespace

std::string fault_text(const Fault& fault) {
  std::string text = "workflow `" + fault.workflow + "`, GPU " + std::to_string(fault.gpu) + ": ";
  const std::string ended = " ended the context of all functions: " + fault.error;
  if (fault.suspects.empty()) {
    text += "a kernel that is not known" + ended + ", reported by " + fault.reporter;
  } else if (fault.suspects.size() == 1) {
    text += suspect_text(fault.suspects[0]) + ended;
  } else {
    text += "one of these" + ended + ": ";
    for (size_t i = 0; i < std::min(fault.suspects.size(), kMostSuspects); ++i)
      text += (i != 0 ? "; " : "") + suspect_text(fault.suspects[i]);
    if (fault.suspects.size() > kMostSuspects)
      text += "; or " + std::to_string(fault.suspects.size() - kMostSuspects) + " more functions";
  }
  if (text.size() >= abi::kFaultTextBytes) text.resize(abi::kFaultTextBytes - 1);
  return text;
}

nlohmann::json fault_json(const Fault& fault) {
  nlohmann::json suspects = nlohmann::json::array();
  for (const Suspect& suspect : fault.suspects)
    suspects.push_back({{"function", suspect.function},
                        {"pid", suspect.pid},
                        {"kernels", suspect.kernels},
                        {"reported", suspect.reported}});
  return {{"gpu", fault.gpu},
          {"error", fault.error},
          {"text", fault_text(fault)},
          {"suspects", std::move(suspects)}};
}

}  // namespace tube::proxy

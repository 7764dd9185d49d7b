#include "proxy/code/jit_options.h"

namespace tube::proxy {

namespace {

enum class OptionUse { kNumber, kLog, kRefused };

OptionUse option_use(uint32_t untrusted_option) {
  switch (untrusted_option) {
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: return OptionUse::kLog;
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_NAMES: return OptionUse::kRefused;
    default:  // a number from outside
      return untrusted_option < CU_JIT_NUM_OPTIONS ? OptionUse::kNumber : OptionUse::kRefused;
  }
}

bool says_as(const std::vector<char>& log, const std::vector<char>& longer) {
  if (log.size() > longer.size()) return false;
  return log.empty() || std::strncmp(log.data(), longer.data(), log.size() - 1) == 0;
}

}  // namespace

bool JitOptions::says_as(const JitOptions& longer) const {
  return proxy::says_as(info_log_, longer.info_log_) &&
         proxy::says_as(error_log_, longer.error_log_);
}

CUresult JitOptions::build(std::span<const uint32_t> untrusted_options,
                           std::span<const uint64_t> untrusted_values,
                           uint32_t untrusted_info_bytes, uint32_t untrusted_error_bytes) {
  if (untrusted_options.size() != untrusted_values.size() ||
      untrusted_options.size() > CU_JIT_NUM_OPTIONS)
    return CUDA_ERROR_INVALID_VALUE;
  client_options_.assign(untrusted_options.begin(), untrusted_options.end());
  client_values_.assign(untrusted_values.begin(), untrusted_values.end());
  for (size_t i = 0; i < untrusted_options.size(); ++i) {
    const OptionUse use = option_use(untrusted_options[i]);
    if (use == OptionUse::kRefused) return CUDA_ERROR_NOT_SUPPORTED;
    if (use == OptionUse::kLog) continue;
    options_.push_back(static_cast<CUjit_option>(untrusted_options[i]));
    values_.push_back(reinterpret_cast<void*>(untrusted_values[i]));
  }
  add_log(info_log_, untrusted_info_bytes, CU_JIT_INFO_LOG_BUFFER,
          CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
  add_log(error_log_, untrusted_error_bytes, CU_JIT_ERROR_LOG_BUFFER,
          CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  return CUDA_SUCCESS;
}

void JitOptions::add_log(std::vector<char>& log, uint32_t bytes, CUjit_option buffer,
                         CUjit_option size) {
  if (bytes == 0) return;
  log.assign(std::min<uint32_t>(bytes, abi::kMaxReplyBytes / 3), 0);
  options_.push_back(buffer);
  values_.push_back(log.data());
  options_.push_back(size);
  values_.push_back(reinterpret_cast<void*>(log.size()));
}

std::vector<uint64_t> JitOptions::client_values() const {
  std::vector<uint64_t> out = client_values_;
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t option = client_options_[i];
    if (option == CU_JIT_INFO_LOG_BUFFER || option == CU_JIT_ERROR_LOG_BUFFER) continue;
    for (size_t ours = 0; ours < options_.size(); ++ours) {
      if (static_cast<uint32_t>(options_[ours]) == option)
        out[i] = reinterpret_cast<uint64_t>(values_[ours]);
    }
  }
  return out;
}

}  // namespace tube::proxy

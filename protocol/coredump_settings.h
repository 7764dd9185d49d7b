// The GPU core dump settings of a process: bookkeeping that the driver does without a GPU, shared
// by hook and sim.
//
// One table holds the process-wide values, another may override them for a context. Environment
// variables that were set when CUDA started win over both (CUDA_ENABLE_COREDUMP_ON_EXCEPTION and
// kin). Nothing here writes a dump. Plain data, no locks: the caller guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/cuda_api.h"

namespace tube {

class CoredumpSettings {
 public:
  static constexpr size_t kTextBytes = 1024;

  // value nullptr: only the size. Switches and flags want exactly their size; of a text as much as
  // fits is given. The pipe and its switch belong to the process alone (all as on an H200, 13.0).
  CUresult get(CUcoredumpSettings attribute, void* value, size_t* size, bool of_context) {
    start();
    if (size == nullptr || !known(attribute, of_context)) return CUDA_ERROR_INVALID_VALUE;
    if (value == nullptr) {
      *size = size_of(attribute);
      return CUDA_SUCCESS;
    }
    if (is_text(attribute)) {
      const char* text = attribute == CU_COREDUMP_FILE ? file_ : pipe_;
      const size_t room = std::min(*size, std::strlen(text) + 1);
      std::memcpy(value, text, room);
      if (room != 0) static_cast<char*>(value)[room - 1] = '\0';
      return CUDA_SUCCESS;
    }
    if (*size != size_of(attribute)) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_COREDUMP_GENERATION_FLAGS) std::memcpy(value, &flags_, sizeof flags_);
    else std::memcpy(value, &on_[attribute], sizeof(bool));
    return CUDA_SUCCESS;
  }

  CUresult set(CUcoredumpSettings attribute, const void* value, size_t* size, bool of_context) {
    start();
    if (size == nullptr || !known(attribute, of_context)) return CUDA_ERROR_INVALID_VALUE;
    if (value == nullptr) {
      *size = size_of(attribute);
      return CUDA_SUCCESS;
    }
    if (!is_text(attribute) && *size != size_of(attribute)) return CUDA_ERROR_INVALID_VALUE;
    if ((fixed_ & bit(attribute)) != 0) return CUDA_SUCCESS;  // the environment has spoken
    if (is_text(attribute))
      return set_text(attribute == CU_COREDUMP_FILE ? file_ : pipe_, value, *size);
    if (attribute == CU_COREDUMP_GENERATION_FLAGS) std::memcpy(&flags_, value, sizeof flags_);
    else on_[attribute] = *static_cast<const unsigned char*>(value) != 0;
    return CUDA_SUCCESS;
  }

 private:
  static constexpr uint32_t bit(CUcoredumpSettings attribute) {
    return 1u << static_cast<unsigned>(attribute);
  }
  static bool is_text(CUcoredumpSettings attribute) {
    return attribute == CU_COREDUMP_FILE || attribute == CU_COREDUMP_PIPE;
  }

  static bool known(CUcoredumpSettings attribute, bool of_context) {
    if (attribute < CU_COREDUMP_ENABLE_ON_EXCEPTION || attribute >= CU_COREDUMP_MAX) return false;
    return !of_context ||
           (attribute != CU_COREDUMP_ENABLE_USER_TRIGGER && attribute != CU_COREDUMP_PIPE);
  }
  static size_t size_of(CUcoredumpSettings attribute) {
    return is_text(attribute)                          ? kTextBytes
           : attribute == CU_COREDUMP_GENERATION_FLAGS ? sizeof(uint32_t)
                                                       : sizeof(bool);
  }

  static CUresult set_text(char* to, const void* value, size_t size) {
    const size_t length = strnlen(static_cast<const char*>(value), size);
    if (length >= kTextBytes) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(to, value, length);
    to[length] = '\0';
    return CUDA_SUCCESS;
  }

  void from_environment(CUcoredumpSettings attribute, const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr) return;
    fixed_ |= bit(attribute);
    if (is_text(attribute))
      (void)set_text(attribute == CU_COREDUMP_FILE ? file_ : pipe_, value, kTextBytes - 1);
    else on_[attribute] = std::strcmp(value, "0") != 0;
  }

  void start() {
    if (started_) return;
    started_ = true;
    on_[CU_COREDUMP_TRIGGER_HOST] = true;
    from_environment(CU_COREDUMP_ENABLE_ON_EXCEPTION, "CUDA_ENABLE_COREDUMP_ON_EXCEPTION");
    from_environment(CU_COREDUMP_TRIGGER_HOST, "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION");
    from_environment(CU_COREDUMP_LIGHTWEIGHT, "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP");
    from_environment(CU_COREDUMP_ENABLE_USER_TRIGGER, "CUDA_ENABLE_USER_TRIGGERED_COREDUMP");
    from_environment(CU_COREDUMP_FILE, "CUDA_COREDUMP_FILE");
    from_environment(CU_COREDUMP_PIPE, "CUDA_COREDUMP_PIPE");
  }

  bool started_ = false;
  bool on_[CU_COREDUMP_MAX] = {};
  uint32_t flags_ = CU_COREDUMP_DEFAULT_FLAGS;
  uint32_t fixed_ = 0;
  char file_[kTextBytes] = {};
  char pipe_[kTextBytes] = {};
};

}  // namespace tube

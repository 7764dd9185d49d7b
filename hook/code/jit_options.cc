// JIT options carry numbers and pointers in the same array: numbers and sizes travel, log buffers
// stay here and are filled from the reply, and what the compiler returns goes back into the
// program's array.
#include <algorithm>
#include <cstring>

#include "hook/objects/kernels.h"

namespace tube::hook {
namespace {

constexpr uint32_t kMaxLogBytes = 6u << 10;  // both logs fit one reply

bool points_elsewhere(CUjit_option option) {
  return option == CU_JIT_GLOBAL_SYMBOL_NAMES || option == CU_JIT_GLOBAL_SYMBOL_ADDRESSES ||
         option == CU_JIT_REFERENCED_KERNEL_NAMES || option == CU_JIT_REFERENCED_VARIABLE_NAMES;
}

void give_log(char* buffer, uint32_t buffer_bytes, std::span<const std::byte> log) {
  if (buffer == nullptr || buffer_bytes == 0) return;
  const size_t length = std::min<size_t>(log.size(), buffer_bytes - 1);
  if (length != 0) std::memcpy(buffer, log.data(), length);
  buffer[length] = 0;
}

}  // namespace

bool JitOptions::parse(unsigned count, const CUjit_option* options, void** values) {
  if (count != 0 && (options == nullptr || values == nullptr)) return false;
  values_ = values;
  for (unsigned i = 0; i < count; ++i) {
    if (points_elsewhere(options[i])) return false;
    uint64_t value = reinterpret_cast<uint64_t>(values[i]);
    if (options[i] == CU_JIT_INFO_LOG_BUFFER) info_ = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) error_ = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER) value = 0;
    if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
      value = info_bytes_ =
          static_cast<uint32_t>(std::min<uint64_t>(value & 0xffffffffu, kMaxLogBytes));
    }
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      value = error_bytes_ =
          static_cast<uint32_t>(std::min<uint64_t>(value & 0xffffffffu, kMaxLogBytes));
    }
    ids_.push_back(static_cast<uint32_t>(options[i]));
    sent_.push_back(value);
  }
  if (info_ == nullptr) info_bytes_ = 0;
  if (error_ == nullptr) error_bytes_ = 0;
  return true;
}

void JitOptions::give_back(std::span<const std::byte> info_log,
                           std::span<const std::byte> error_log,
                           std::span<const std::byte> values) {
  give_log(info_, info_bytes_, info_log);
  give_log(error_, error_bytes_, error_log);
  for (size_t i = 0; i < ids_.size() && (i + 1) * 8 <= values.size(); ++i) {
    const auto id = static_cast<CUjit_option>(ids_[i]);
    const bool returns = id == CU_JIT_THREADS_PER_BLOCK || id == CU_JIT_WALL_TIME ||
                         id == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
                         id == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
    if (!returns) continue;
    uint64_t value;
    std::memcpy(&value, values.data() + i * 8, sizeof value);
    values_[i] = reinterpret_cast<void*>(value);
  }
}

}  // namespace tube::hook

#include <gtest/gtest.h>

#include <cstring>
#include <span>

#include "hook/objects/kernels.h"

namespace tube::hook {
namespace {

std::span<const std::byte> bytes_of(const char* text) {
  return {reinterpret_cast<const std::byte*>(text), std::strlen(text)};
}

TEST(JitOptions, LogBuffersStayHereAndAreFilled) {
  char info[16], error[4];
  std::memset(info, 'x', sizeof info);
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {info, reinterpret_cast<void*>(sizeof info), error,
                    reinterpret_cast<void*>(sizeof error)};
  JitOptions jit;
  ASSERT_TRUE(jit.parse(4, options, values));
  EXPECT_EQ(jit.values()[0], 0u);  // no pointer of this process travels
  EXPECT_EQ(jit.values()[2], 0u);
  EXPECT_EQ(jit.info_log_bytes(), 16u);
  EXPECT_EQ(jit.error_log_bytes(), 4u);
  const uint64_t returned[] = {0, 5, 0, 3};
  jit.give_back(bytes_of("hello"), bytes_of("too long"), std::as_bytes(std::span(returned)));
  EXPECT_STREQ(info, "hello");
  EXPECT_STREQ(error, "too");  // cut, with its NUL
  EXPECT_EQ(reinterpret_cast<uint64_t>(values[1]), 5u);
  EXPECT_EQ(reinterpret_cast<uint64_t>(values[3]), 3u);
  EXPECT_EQ(values[0], info);
}

TEST(JitOptions, NumbersTravelAndOnlyReturnedOnesComeBack) {
  CUjit_option options[] = {CU_JIT_MAX_REGISTERS, CU_JIT_WALL_TIME};
  void* values[] = {reinterpret_cast<void*>(32), nullptr};
  JitOptions jit;
  ASSERT_TRUE(jit.parse(2, options, values));
  EXPECT_EQ(jit.values()[0], 32u);
  const uint64_t returned[] = {99, 0x40000000};
  jit.give_back({}, {}, std::as_bytes(std::span(returned)));
  EXPECT_EQ(reinterpret_cast<uint64_t>(values[0]), 32u);
  EXPECT_EQ(reinterpret_cast<uint64_t>(values[1]), 0x40000000u);
}

TEST(JitOptions, PointersToOtherThingsAreRefused) {
  CUjit_option option = CU_JIT_GLOBAL_SYMBOL_NAMES;
  void* value = nullptr;
  JitOptions jit;
  EXPECT_FALSE(jit.parse(1, &option, &value));
}

TEST(JitOptions, MissingArraysAreRefused) {
  JitOptions jit;
  EXPECT_FALSE(jit.parse(1, nullptr, nullptr));
}

}  // namespace
}  // namespace tube::hook

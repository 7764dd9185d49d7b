// Every TUBE_* environment variable, with its default and meaning: the one table that code and the
// manual page read.
//
// The environment is read once, at the first question, and copied: programs change their
// environment from several threads, and getenv() is no longer safe then. A program with more rights
// than its caller (set-uid, set-gid, file capabilities) reads none of them. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tube {

enum class Env : uint8_t {
  kWorkflow,
  kFunction,
  kDir,
  kBackend,
  kLog,
  kLogFile,
  kRealDriver,
  kRealNvml,
  kPreinit,
  kOff,
  kSpinUs,
  kRhythm,
  kCoalesceUs,
  kCopyLane,
  kCopyPaths,
  kLaunchPolicy,
  kLaunchHoldMs,
  kLaunchLongUs,
  kSlowCallUs,
  kSlices,
  kAutoSliceMs,
  kWeight,
  kSmPercent,
  kPriority,
  kSloMs,
  kInferMs,
  kMemory,
  kCopyThreads,
  kPinned,
  kPool,
  kPoolPolicy,
  kEvictHost,
  kEvictPolicy,
  kEvictIdleMs,
  kStorePolicy,
  kStoreGpu,
  kStoreShare,
  kStoreVerify,
  kMemoryWaitMs,
  kLazyBacking,
  kMemoryMode,
  kCache,
  kHookLib,
  kSimLib,
  kTubed,
  kCoverage,
  kTraceStart,
  kTraceRecords,
  kSpares,
  kShareModules,
  kDeviceHeap,
  kStoppedSeconds,
  kHangTimeout,
  kStallSeconds,
  kTeardownMs,
  kCompile,
  kCompileSeconds,
  kCount,
};

struct EnvEntry {
  const char* name;
  const char* default_text;  // in words, for the manual
  const char* meaning;
};

const EnvEntry& env_entry(Env variable);
// The value, or nullptr when it is unset or empty. Valid for the life of the process.
const char* env_text(Env variable);
// Whether it is neither "0" nor "false" nor "no" nor "off"; `unset` when it is unset or empty.
bool env_flag(Env variable, bool unset = false);
// Empty when unset; a value that is not a decimal number is reported once and ignored.
std::optional<uint64_t> env_number(Env variable);
// The same for a limit as byte_size.h reads it; `none` is UINT64_MAX.
std::optional<uint64_t> env_byte_limit(Env variable);
// The ENVIRONMENT section of tube.7 (roff), generated from the table.
std::string env_manual_section();

// Reads the environment again. Tests only: pointers handed out before stay valid.
void env_read_again_for_test();

}  // namespace tube

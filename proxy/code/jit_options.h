// A client's JIT options (tubeLoadImage, tubeLink) as the driver can take them.
//
// Values that are numbers go through; log buffers are the client's pointers and are replaced by
// ours, whose text the reply carries; options that hold other pointers are refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/cuda_api.h"
#include "protocol/wire.gen.h"
#include "sharedmem/abi.h"

namespace tube::proxy {

class JitOptions {
 public:
  CUresult build(std::span<const uint32_t> untrusted_options,
                 std::span<const uint64_t> untrusted_values, uint32_t untrusted_info_bytes,
                 uint32_t untrusted_error_bytes);

  unsigned int count() const { return static_cast<unsigned int>(options_.size()); }
  CUjit_option* options() { return options_.data(); }
  void** values() { return values_.data(); }
  // Whether the driver wrote into the log of errors.
  bool error_told() const { return !error_log_.empty() && error_log_[0] != '\0'; }
  // Whether its logs say what those of `longer` begin with, as far as they have room.
  bool says_as(const JitOptions& longer) const;

  // Into a reply with the fields jit_values, info_log and error_log: the values the driver wrote
  // back, in the client's order, and the NUL-terminated logs.
  template <class R, class ReplyOfX>
  void answer(ReplyOfX& reply) {
    const std::vector<uint64_t> out = client_values();
    if (!out.empty()) reply.put(&R::jit_values, std::as_bytes(std::span(out)));
    put_log<R>(reply, &R::info_log, info_log_);
    put_log<R>(reply, &R::error_log, error_log_);
  }

 private:
  void add_log(std::vector<char>& log, uint32_t bytes, CUjit_option buffer, CUjit_option size);
  std::vector<uint64_t> client_values() const;
  template <class R, class ReplyOfX>
  static void put_log(ReplyOfX& reply, wire::BlobRef R::*field, const std::vector<char>& log) {
    if (log.empty()) return;
    const size_t length = strnlen(log.data(), log.size() - 1) + 1;
    reply.put(field, std::as_bytes(std::span(log.data(), length)));
  }

  std::vector<uint32_t> client_options_;
  std::vector<uint64_t> client_values_;
  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  std::vector<char> info_log_;
  std::vector<char> error_log_;
};

}  // namespace tube::proxy

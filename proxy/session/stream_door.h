// The one place that every record passes before it is executed, with the streams that it names:
// where a stream's work can be kept from the driver while its turn has not come.
//
// Which fields name streams is described with the calls (wire::stream_fields). Today nothing is
// ever kept back, and a record costs one test of a flag. Session thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "sharedmem/abi.h"

namespace tube::proxy {

class StreamDoor {
 public:
  enum class Answer : uint32_t { kGo };

  struct Passing {
    const abi::RecordHeader& header;
    std::span<const uint64_t> untrusted_streams;
  };
  using Guard = std::function<Answer(const Passing&)>;

  // Asked about every record from here on; nullptr: nobody is.
  void set_guard(Guard guard) {
    guard_ = std::move(guard);
    guarded_ = guard_ != nullptr;
  }
  // Once for every record, before anything of it is executed. The payload may be too short for its
  // call: fields that are not there name nothing.
  Answer admit(const abi::RecordHeader& header, std::span<const std::byte> untrusted_payload) {
    if (!guarded_) [[likely]]
      return Answer::kGo;
    return ask(header, untrusted_payload);
  }

 private:
  Answer ask(const abi::RecordHeader& header, std::span<const std::byte> untrusted_payload);

  bool guarded_ = false;
  Guard guard_;
};

}  // namespace tube::proxy

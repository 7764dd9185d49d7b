// The device runtime functions that PTX calls without defining them: vprintf, malloc, free,
// __assertfail, cudaGraphSetConditional.
//
// Their arguments are .param variables of the caller's frame. printf formats here, on the host: the
// format string and the packed arguments are read lane by lane, in lane order.
#include <cstdio>
#include <string>

#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

constexpr size_t kMaxText = 64u << 10;

uint64_t argument(const Warp& w, const Inst& in, size_t index, unsigned lane) {
  const CallSite& site = w.frame->function->calls[in.target];
  if (index >= site.args.size()) return 0;
  const Actual& actual = site.args[index];
  uint64_t value = 0;
  if (actual.in_param)
    std::memcpy(&value, w.local + size_t{lane} * w.local_stride + w.local_base + actual.offset,
                actual.size < 8 ? actual.size : 8);
  else if (actual.cls == Class::k64) value = slot64(w, actual.slot)[lane];
  else value = slot32(w, actual.slot)[lane];
  return value;
}

void answer(Warp& w, const Inst& in, unsigned lane, uint64_t value) {
  const CallSite& site = w.frame->function->calls[in.target];
  if (site.returns.empty()) return;
  const Actual& actual = site.returns[0];
  if (actual.in_param)
    std::memcpy(w.local + size_t{lane} * w.local_stride + w.local_base + actual.offset, &value,
                actual.size < 8 ? actual.size : 8);
  else if (actual.cls == Class::k64) slot64(w, actual.slot)[lane] = value;
  else slot32(w, actual.slot)[lane] = static_cast<uint32_t>(value);
}

bool read_bytes(Warp& w, uint64_t address, void* out, uint32_t size, unsigned lane) {
  const std::byte* const at = resolve<Space::kGeneric>(w, address, size, lane, false);
  if (at == nullptr) return false;
  std::memcpy(out, at, size);
  return true;
}

bool read_string(Warp& w, uint64_t address, unsigned lane, std::string* out) {
  if (address == 0) {
    *out = "(null)";
    return true;
  }
  for (; out->size() < kMaxText; ++address) {
    char c = 0;
    if (!read_bytes(w, address, &c, 1, lane)) return false;
    if (c == '\0') return true;
    *out += c;
  }
  return true;
}

// Reads arguments in order, each at its natural alignment.
class Arguments {
 public:
  Arguments(Warp& w, uint64_t address, unsigned lane) : w_(w), at_(address), lane_(lane) {}
  template <class T>
  bool next(T* out) {
    at_ = (at_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    const bool fine = read_bytes(w_, at_, out, sizeof(T), lane_);
    at_ += sizeof(T);
    return fine;
  }

 private:
  Warp& w_;
  uint64_t at_;
  unsigned lane_;
};

template <class... Values>
void append(std::string* out, const std::string& spec, Values... values) {
  char buffer[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
  const int length = std::snprintf(buffer, sizeof(buffer), spec.c_str(), values...);
  if (length < 0) return;
  if (static_cast<size_t>(length) < sizeof(buffer)) {
    out->append(buffer, static_cast<size_t>(length));
    return;
  }
  if (static_cast<size_t>(length) > kMaxText) return;
  std::string large(static_cast<size_t>(length) + 1, '\0');
  std::snprintf(large.data(), large.size(), spec.c_str(), values...);
#pragma GCC diagnostic pop
  out->append(large.data(), static_cast<size_t>(length));
}

// One conversion. `spec` is "%-08" and so on without length and letter; false when an argument
// cannot be read.
bool convert(Warp& w, unsigned lane, Arguments& args, const std::string& spec, bool wide,
             char letter, std::string* out) {
  switch (letter) {
    case 'd':
    case 'i':
    case 'o':
    case 'u':
    case 'x':
    case 'X': {
      long long value = 0;
      int32_t narrow_value = 0;
      if (wide ? !args.next(&value) : !args.next(&narrow_value)) return false;
      const bool sign = letter == 'd' || letter == 'i';
      if (!wide)
        value = sign ? narrow_value : static_cast<long long>(static_cast<uint32_t>(narrow_value));
      append(out, spec + "ll" + letter, value);
      return true;
    }
    case 'c': {
      int32_t value = 0;
      if (!args.next(&value)) return false;
      append(out, spec + letter, value);
      return true;
    }
    case 'a':
    case 'A':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
      double value = 0;
      if (!args.next(&value)) return false;
      append(out, spec + letter, value);
      return true;
    }
    case 'p': {
      uint64_t value = 0;
      if (!args.next(&value)) return false;
      append(out, spec + 'p', reinterpret_cast<void*>(value));
      return true;
    }
    case 's': {
      uint64_t address = 0;
      std::string text;
      if (!args.next(&address) || !read_string(w, address, lane, &text)) return false;
      append(out, spec + 's', text.c_str());
      return true;
    }
    default: out->append(spec).push_back(letter); return true;
  }
}

bool format(Warp& w, unsigned lane, const std::string& text, uint64_t arguments, std::string* out,
            int* conversions) {
  Arguments args(w, arguments, lane);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out->push_back(text[i]);
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '%') {
      out->push_back('%');
      ++i;
      continue;
    }
    std::string spec = "%";
    bool wide = false;
    for (++i; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '*') {
        int32_t width = 0;
        if (!args.next(&width)) return false;
        spec += std::to_string(width < 10000 && width > -10000 ? width : 0);
      } else if (c == 'l' || c == 'z' || c == 'j' || c == 't') {
        wide = true;
      } else if (c == 'h' || c == 'L') {
        continue;
      } else if ((c >= '0' && c <= '9') || c == '-' || c == '+' || c == ' ' || c == '#' ||
                 c == '.') {
        if (spec.size() < 32) spec += c;
      } else {
        break;
      }
    }
    if (i >= text.size()) return true;
    if (!convert(w, lane, args, spec, wide, text[i], out)) return false;
    ++*conversions;
  }
  return true;
}

void vprintf_lanes(Warp& w, const Inst& in, uint32_t mask) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    std::string text, out;
    int conversions = 0;
    if (!read_string(w, argument(w, in, 0, lane), lane, &text) ||
        !format(w, lane, text, argument(w, in, 1, lane), &out, &conversions))
      return w.fault(Fault::Kind::kIllegalAddress, in, argument(w, in, 1, lane),
                     "illegal address in printf");
    w.launch->memory.print(out);
    answer(w, in, lane, static_cast<uint64_t>(conversions));
  }
}

void malloc_lanes(Warp& w, const Inst& in, uint32_t mask) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    answer(w, in, lane, w.launch->memory.heap_alloc(argument(w, in, 0, lane)));
  }
}

void free_lanes(Warp& w, const Inst& in, uint32_t mask) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    const uint64_t address = argument(w, in, 0, lane);
    if (address != 0) w.launch->memory.heap_free(address);
  }
  // What was cached about the block is stale now.
  for (auto& side : w.launch->cache)
    for (Range& range : side) range = Range{};
  for (Range& range : w.launch->last) range = Range{};
}

// __assertfail(message, file, line, function, char size)
void assert_lanes(Warp& w, const Inst& in, uint32_t mask) {
  const auto lane = static_cast<unsigned>(std::countr_zero(mask));
  std::string message, file, function;
  read_string(w, argument(w, in, 0, lane), lane, &message);
  read_string(w, argument(w, in, 1, lane), lane, &file);
  read_string(w, argument(w, in, 3, lane), lane, &function);
  const Block& block = *w.block;
  std::string text = file + ":" + std::to_string(argument(w, in, 2, lane) & UINT32_MAX) + ": " +
                     function + ": block: [";
  for (int i = 0; i < 3; ++i) text += std::to_string(block.id[i]) + (i < 2 ? "," : "], thread: [");
  for (int i = 0; i < 3; ++i)
    text += std::to_string(w.tid[i][lane]) + (i < 2 ? "," : "] Assertion `");
  w.fault(Fault::Kind::kAssert, in, 0, text + message + "` failed.");
}

// cudaGraphSetConditional(handle, value); of several lanes the last one stays.
void set_conditional_lanes(Warp& w, const Inst& in, uint32_t mask) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    w.launch->memory.set_conditional(argument(w, in, 0, lane),
                                     static_cast<uint32_t>(argument(w, in, 1, lane)));
  }
}

}  // namespace

Handler device_runtime(std::string_view name) {
  if (name == "vprintf") return vprintf_lanes;
  if (name == "malloc") return malloc_lanes;
  if (name == "free") return free_lanes;
  if (name == "__assertfail") return assert_lanes;
  if (name == "cudaGraphSetConditional") return set_conditional_lanes;
  return nullptr;
}

}  // namespace tube::sim::ptx

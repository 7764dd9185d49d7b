#include "protocol/print.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include "protocol/handle_id.h"
#include "protocol/visit.gen.h"

namespace tube::wire {
namespace {

constexpr size_t kShownName =
    120;  // a longer name is cut: C++ kernel names run to thousands of characters

__attribute__((format(printf, 2, 3))) void append(std::string& out, const char* format, ...) {
  char text[96];
  va_list arguments;
  va_start(arguments, format);
  const int n = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  out.append(text, std::min(sizeof text - 1, static_cast<size_t>(std::max(n, 0))));
}

class Printer {
 public:
  Printer(std::string& out, std::span<const std::byte> payload) : out_(out), payload_(payload) {}

  template <class T>
  void number(const char* name, const T& value, FieldKind kind) {
    field(name);
    if constexpr (std::is_floating_point_v<T>) {
      append(out_, "%g", static_cast<double>(value));
    } else if (kind == FieldKind::kId) {
      append(out_, "id %" PRIu32 ".%" PRIu32, id_index(static_cast<uint64_t>(value)),
             id_generation(static_cast<uint64_t>(value)));
    } else if (kind == FieldKind::kAddress) {
      append(out_, "0x%" PRIx64, static_cast<uint64_t>(value));
    } else if constexpr (std::is_signed_v<T>) {
      append(out_, "%" PRId64, static_cast<int64_t>(value));
    } else {
      append(out_, "%" PRIu64, static_cast<uint64_t>(value));
    }
  }

  template <class T>
  void choice(const char* name, T value) {
    number(name, static_cast<std::underlying_type_t<T>>(value), FieldKind::kNumber);
  }

  template <class T, size_t N>
  void array(const char* name, const T (&values)[N]) {
    field(name);
    for (size_t i = 0; i < N; ++i)
      append(out_, "%s%" PRId64, i == 0 ? "(" : ", ", static_cast<int64_t>(values[i]));
    out_ += ')';
  }

  template <size_t N>
  void opaque(const char* name, const unsigned char (&bytes)[N]) {
    field(name);
    for (size_t i = 0; i < std::min<size_t>(N, 16); ++i) append(out_, "%02x", bytes[i]);
    if (N > 16) append(out_, "... (%zu bytes)", N);
  }

  void blob(const char* name, const BlobRef& ref, uint32_t element_bytes, uint32_t) {
    field(name);
    if (element_bytes > 1) {
      append(out_, "%" PRIu32 " x %" PRIu32 " bytes", ref.size / element_bytes, element_bytes);
    } else {
      append(out_, "%" PRIu32 " bytes", ref.size);
    }
  }

  void name(const char* name, const BlobRef& ref) {
    field(name);
    if (ref.offset > payload_.size() || ref.size > payload_.size() - ref.offset) {
      out_ += "out of range";
      return;
    }
    out_ += '"';
    for (const std::byte b : payload_.subspan(ref.offset, std::min<size_t>(ref.size, kShownName))) {
      const char c = static_cast<char>(b);
      out_ += c >= ' ' && c <= '~' ? c : '?';
    }
    out_ += ref.size > kShownName ? "...\"" : "\"";
  }

 private:
  void field(const char* name) {
    if (!first_) out_ += ", ";
    first_ = false;
    out_ += name;
    out_ += ": ";
  }

  std::string& out_;
  std::span<const std::byte> payload_;
  bool first_ = true;
};

template <class T>
void print_struct(std::string& out, std::span<const std::byte> untrusted_payload) {
  T fixed{};
  if (untrusted_payload.size() < T::kFixedBytes) {
    append(out, "{cut off: %zu of %u bytes}", untrusted_payload.size(), T::kFixedBytes);
    return;
  }
  if (T::kFixedBytes != 0) std::memcpy(&fixed, untrusted_payload.data(), T::kFixedBytes);
  out += '{';
  visit(std::as_const(fixed), Printer(out, untrusted_payload));
  out += validate(untrusted_payload, fixed) ? "}" : "} (invalid)";
}

}  // namespace

void print(std::string& out, Call call, std::span<const std::byte> untrusted_payload) {
  switch (call) {
#define TUBE_PRINT(X) \
  case Call::X: out += #X " "; return print_struct<X>(out, untrusted_payload);
    TUBE_FOR_EACH_CALL(TUBE_PRINT)
#undef TUBE_PRINT
    case Call::kNone: break;
  }
  append(out, "call %" PRIu32 " (%zu bytes)", static_cast<uint32_t>(call),
         untrusted_payload.size());
}

}  // namespace tube::wire

// Every call and every reply of the protocol: what is written is read back, a truncated or mutated
// record is noticed or harmless, and each rule of protocol/README.md about blobs and reserved
// fields is enforced. The calls come from the generated list, so a new description is tested
// without a new line here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "protocol/print.h"
#include "protocol/visit.gen.h"
#include "protocol/wire.gen.h"

namespace tube::wire {
namespace {

// A small fixed generator: the same records in every run and on every machine.
class Random {
 public:
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15ull;
};

// Fills every field with its own value and every blob with three elements (a name with seven
// letters).
class Filler {
 public:
  Filler(Random& random, std::vector<std::byte>& payload) : random_(random), payload_(payload) {}

  template <class T>
  void number(const char*, T& value, FieldKind) {
    value = static_cast<T>(random_.next());
  }
  template <class T>
  void choice(const char*, T& value) {  // every enum has a value below 64
    do value = static_cast<T>(random_.next() % 64);
    while (!is_valid(value));
  }
  template <class T, size_t N>
  void array(const char*, T (&values)[N]) {
    for (T& value : values) value = static_cast<T>(random_.next());
  }
  template <size_t N>
  void opaque(const char*, unsigned char (&bytes)[N]) {
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random_.next());
  }
  void blob(const char*, BlobRef& ref, uint32_t element_bytes, uint32_t) {
    ref = add(3 * element_bytes);
  }
  void name(const char*, BlobRef& ref) { ref = add(7); }

 private:
  BlobRef add(uint32_t bytes) {
    payload_.resize(align8(static_cast<uint32_t>(payload_.size())));
    const BlobRef ref{static_cast<uint32_t>(payload_.size()), bytes};
    for (uint32_t i = 0; i < bytes; ++i)
      payload_.push_back(static_cast<std::byte>('a' + random_.next() % 26));
    return ref;
  }

  Random& random_;
  std::vector<std::byte>& payload_;
};

// Collects the blobs and enums of a struct, to break them one by one.
struct Blobs {
  struct Entry {
    std::string field;
    BlobRef* ref;
    uint32_t element_bytes, max_bytes;
    bool is_name;
  };
  std::vector<Entry> all;
  std::vector<std::pair<std::string, std::span<std::byte>>> choices;

  template <class T>
  void number(const char*, T&, FieldKind) {}
  template <class T>
  void choice(const char* field, T& value) {
    choices.emplace_back(field, std::as_writable_bytes(std::span(&value, 1)));
  }
  template <class T>
  void array(const char*, T&) {}
  template <class T>
  void opaque(const char*, T&) {}
  void blob(const char* field, BlobRef& ref, uint32_t element, uint32_t max) {
    all.push_back({field, &ref, element, max, false});
  }
  void name(const char* field, BlobRef& ref) {
    all.push_back({field, &ref, 1, kMaxNameBytes, true});
  }
};

// One call's or reply's struct without its type: the rules below are compiled once, not once for
// each of three hundred types.
struct Shape {
  const char* name;
  uint32_t call;  // 0: a reply
  uint32_t fixed_bytes;
  void (*fill)(void* fixed, Filler& filler);
  void (*find_blobs)(void* fixed, Blobs& blobs);
  bool (*validate)(std::span<const std::byte> payload, const void* fixed);
};

template <class X>
constexpr uint32_t call_of() {
  if constexpr (requires { X::kCall; }) return static_cast<uint32_t>(X::kCall);
  return 0;
}

template <class X>
constexpr Shape shape_of(const char* name) {
  return {name,
          call_of<X>(),
          X::kFixedBytes,
          [](void* fixed, Filler& filler) { visit(*static_cast<X*>(fixed), filler); },
          [](void* fixed, Blobs& blobs) { visit(*static_cast<X*>(fixed), blobs); },
          [](std::span<const std::byte> payload, const void* fixed) {
            return wire::validate(payload, *static_cast<const X*>(fixed));
          }};
}

#define TUBE_SHAPES(X) shape_of<X>(#X), shape_of<X::Reply>(#X "_reply"),
const Shape kShapes[] = {TUBE_FOR_EACH_CALL(TUBE_SHAPES)};
#undef TUBE_SHAPES

// Room for the fixed part of any struct, aligned as they are; zeroed.
class Fixed {
 public:
  explicit Fixed(const Shape& shape)
      : words_(shape.fixed_bytes / 8 + 1), bytes_(shape.fixed_bytes) {}
  void* data() { return words_.data(); }
  const void* data() const { return words_.data(); }
  void copy_from(std::span<const std::byte> payload) {
    if (bytes_ != 0) std::memcpy(words_.data(), payload.data(), bytes_);
  }

 private:
  std::vector<uint64_t> words_;
  uint32_t bytes_;
};

struct Record {
  const Shape& shape;
  Fixed fixed;
  std::vector<std::byte> payload;

  Record(const Shape& shape, Random& random)
      : shape(shape), fixed(shape), payload(shape.fixed_bytes) {
    Filler filler(random, payload);
    shape.fill(fixed.data(), filler);
    if (shape.fixed_bytes != 0) std::memcpy(payload.data(), fixed.data(), shape.fixed_bytes);
  }
  bool valid() const { return shape.validate(payload, fixed.data()); }
};

bool decodes(const Shape& shape, std::span<const std::byte> payload) {
  if (payload.size() < shape.fixed_bytes) return false;
  Fixed fixed(shape);
  fixed.copy_from(payload);
  return shape.validate(payload, fixed.data());
}

void round_trip(const Shape& shape) {
  Random random;
  Record record(shape, random);
  EXPECT_TRUE(decodes(shape, record.payload));
  EXPECT_EQ(shape.fixed_bytes % 8, 0u);
  EXPECT_TRUE(shape.validate(record.payload, Fixed(shape).data()) || shape.fixed_bytes == 0)
      << "empty blobs are valid";
}

void truncation(const Shape& shape) {
  Random random;
  Record record(shape, random);
  for (size_t size = 0; size < record.payload.size(); ++size) {
    ASSERT_FALSE(decodes(shape, std::span(record.payload).first(size)))
        << "cut to " << size << " of " << record.payload.size();
  }
}

void broken_blobs(const Shape& shape) {
  Random random;
  Record record(shape, random);
  Blobs blobs;
  shape.find_blobs(record.fixed.data(), blobs);
  for (Blobs::Entry& blob : blobs.all) {
    SCOPED_TRACE(blob.field);
    const BlobRef good = *blob.ref;
    const auto refuses = [&](BlobRef bad, const char* why) {
      *blob.ref = bad;
      EXPECT_FALSE(record.valid()) << why;
      *blob.ref = good;
    };
    const uint32_t end = static_cast<uint32_t>(record.payload.size());
    refuses({good.offset, end - good.offset + blob.element_bytes}, "past the end");
    refuses({0, good.size}, "inside the fixed struct");
    refuses({good.offset + 4, good.size}, "not aligned");
    refuses({align8(end) + 8, good.size}, "starts behind the end");
    refuses({0xfffffff8u, good.size}, "offset near 4 GiB");
    refuses({good.offset, 0xfffffff8u / blob.element_bytes * blob.element_bytes},
            "size near 4 GiB");
    refuses({0xfffffff8u, 0}, "empty, but far away");
    if (blob.element_bytes > 1) refuses({good.offset, good.size - 1}, "half an element");
    if (blob.max_bytes != 0) {
      record.payload.resize(good.offset + blob.max_bytes + 2 * blob.element_bytes, std::byte{'x'});
      refuses({good.offset,
               blob.max_bytes / blob.element_bytes * blob.element_bytes + blob.element_bytes},
              "over its limit");
      record.payload.resize(end);
    }
    if (blob.is_name) {
      const std::byte letter = record.payload[good.offset + 2];
      record.payload[good.offset + 2] = std::byte{0};
      EXPECT_FALSE(record.valid()) << "NUL inside a name";
      record.payload[good.offset + 2] = letter;
    }
    EXPECT_TRUE(record.valid());
  }
}

void broken_choices(const Shape& shape) {
  Random random;
  Record record(shape, random);
  Blobs found;
  shape.find_blobs(record.fixed.data(), found);
  for (auto& [field, bytes] : found.choices) {
    SCOPED_TRACE(field);
    const std::vector<std::byte> good(bytes.begin(), bytes.end());
    for (std::byte& byte : bytes) byte = std::byte{0xff};
    EXPECT_FALSE(record.valid()) << "a value that the enum does not have";
    std::copy(good.begin(), good.end(), bytes.begin());
    EXPECT_TRUE(record.valid());
  }
}

// Bytes changed at random: validate() and the printer may say anything but must stay inside the
// payload (ASan watches), and whatever is accepted has its blobs in range.
void mutation(const Shape& shape) {
  Random random;
  Record record(shape, random);
  if (record.payload.empty()) return;
  for (int round = 0; round < 200; ++round) {
    // on the heap, exactly as long as the record, so that a byte too far is noticed
    std::vector<std::byte> bytes(
        record.payload.begin(),
        record.payload.end() - random.next() % 2 * (random.next() % record.payload.size()));
    for (uint64_t n = 1 + random.next() % 4; n != 0 && !bytes.empty(); --n) {
      bytes[random.next() % bytes.size()] = static_cast<std::byte>(random.next());
    }
    Fixed fixed(shape);
    if (bytes.size() >= shape.fixed_bytes) {
      fixed.copy_from(bytes);
      if (shape.validate(bytes, fixed.data())) {
        Blobs blobs;
        shape.find_blobs(fixed.data(), blobs);
        for (const Blobs::Entry& blob : blobs.all)
          ASSERT_LE(uint64_t{blob.ref->offset} + blob.ref->size, bytes.size()) << blob.field;
      }
    }
    std::string text;
    if (shape.call != 0) print(text, static_cast<Call>(shape.call), bytes);
    (void)decodes(shape, bytes);
  }
}

void for_each_shape(void (*rule)(const Shape& shape)) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    rule(shape);
  }
}

TEST(Wire, WhatIsWrittenIsReadBack) { for_each_shape(round_trip); }
TEST(Wire, EveryTruncatedRecordIsRefused) { for_each_shape(truncation); }
TEST(Wire, BlobsOutsideTheirRulesAreRefused) { for_each_shape(broken_blobs); }
TEST(Wire, ValuesThatAnEnumDoesNotHaveAreRefused) { for_each_shape(broken_choices); }
TEST(Wire, MutatedRecordsAreRefusedOrHarmless) { for_each_shape(mutation); }

TEST(Wire, NumbersAndNamesAreUniqueAndKnown) {
  std::set<uint32_t> numbers;
  std::set<std::string> names;
  for (const Shape& shape : kShapes) {
    if (shape.call == 0) continue;
    EXPECT_TRUE(numbers.insert(shape.call).second) << shape.name;
    EXPECT_TRUE(names.insert(call_name(shape.call)).second) << shape.name;
    EXPECT_STREQ(call_name(shape.call), shape.name);
    EXPECT_EQ(call_info(shape.call)->fixed_bytes, shape.fixed_bytes);
  }
  EXPECT_GT(numbers.size(), 100u);
  EXPECT_STREQ(call_name(0), "?");
  EXPECT_STREQ(call_name(kCallCount), "?");
  EXPECT_STREQ(call_name(0xffffffffu), "?");
  EXPECT_EQ(call_info(0), nullptr);
}

TEST(Print, NamesTheCallAndItsFields) {
  tubeSignal signal{};
  signal.stream = 5ull << 32 | 7;
  signal.word = 3;
  signal.value = 42;
  std::string text;
  print(text, Call::tubeSignal, std::as_bytes(std::span(&signal, 1)));
  EXPECT_EQ(text, "tubeSignal {stream: id 7.5, word: 3, value: 42}");
}

TEST(Print, ShowsNamesAndMarksWhatIsInvalid) {
  std::vector<std::byte> payload(sizeof(tubeGetGlobal) + 8);
  tubeGetGlobal call{};
  call.name = {sizeof(tubeGetGlobal), 4};
  std::memcpy(payload.data(), &call, sizeof call);
  std::memcpy(payload.data() + sizeof call, "ta\tb", 4);
  std::string text;
  print(text, Call::tubeGetGlobal, payload);
  EXPECT_NE(text.find("name: \"ta?b\""), std::string::npos) << text;
  text.clear();
  print(text, Call::tubeGetGlobal, std::span(payload).first(sizeof call));
  EXPECT_NE(text.find("name: out of range} (invalid)"), std::string::npos) << text;
  text.clear();
  print(text, Call::tubeGetGlobal, std::span(payload).first(5));
  EXPECT_EQ(text, "tubeGetGlobal {cut off: 5 of " + std::to_string(sizeof call) + " bytes}");
  text.clear();
  print(text, static_cast<Call>(4711), payload);
  EXPECT_EQ(text, "call 4711 (" + std::to_string(payload.size()) + " bytes)");
}

}  // namespace
}  // namespace tube::wire

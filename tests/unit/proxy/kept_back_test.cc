// What is kept back: every record that names a held stream, before anything of it is executed.
#include <cstring>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/properties.gen.h"
#include "protocol/visit.gen.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

// By the name and kind of the fields, which the table of the description does not look at.
class StreamFields {
 public:
  template <class X>
  explicit StreamFields(X& record) : begin_(reinterpret_cast<std::byte*>(&record)) {
    wire::visit(record, *this);
  }
  template <class T>
  void number(const char* name, T& field, wire::FieldKind kind) {
    static const std::set<std::string_view> names = {"stream", "hStream", "dstStream", "srcStream"};
    if (kind == wire::FieldKind::kId && names.contains(name))
      at.push_back(reinterpret_cast<std::byte*>(&field) - begin_);
  }
  template <class T>
  void choice(const char*, T&) {}
  template <class T>
  void array(const char*, T&) {}
  template <class T>
  void opaque(const char*, T&) {}
  void blob(const char*, wire::BlobRef&, uint32_t, uint32_t) {}
  void name(const char*, wire::BlobRef&) {}

  std::vector<ptrdiff_t> at;

 private:
  std::byte* const begin_;
};

class KeptBackTest : public SessionTest {
 protected:
  // Posts a record whose streams have ids of their own and are held: it is kept back, or answered
  // where it only looks, and is executed once they are let go.
  template <class X>
  void drive() {
    X record{};
    const StreamFields fields(record);
    if (fields.at.empty()) return;
    ++driven;
    if (session->poisoned()) restart();
    ParkKeys keys;
    for (const ptrdiff_t at : fields.at) {
      const uint64_t id = make_id(++made % 100 + 1, 1);
      std::memcpy(reinterpret_cast<std::byte*>(&record) + at, &id, sizeof(id));
      keys.add(ParkKeys::object(wire::NamedKind::kStream, id), true);
    }
    ParkedRecords& parked = session->parked();
    parked.hold(keys);
    test::fake().calls.clear();
    const char* name = wire::call_name(static_cast<uint32_t>(X::kCall));
    const uint64_t executed = session->stats().records.load();
    const bool waits = X::kLane != wire::Lane::kPost;
    if (waits) shared::client_opens_reply(client_segment.reply(1));
    post_bytes(static_cast<uint32_t>(X::kCall), &record, X::kFixedBytes, 1,
               waits ? 1 : abi::kNoReply);
    const bool looks = waits && wire::properties_of(static_cast<uint32_t>(X::kCall)).marks;
    EXPECT_EQ(parked.count(), looks ? 0u : 1u) << name;
    EXPECT_EQ(session->stats().records.load(), executed) << name << " was executed";
    EXPECT_TRUE(test::fake().calls.empty()) << name << " reached the driver";
    parked.let_go(keys);
    size_t released = 0;
    parked.release([&](const abi::RecordHeader& header, std::span<const std::byte> payload) {
      ++released;
      EXPECT_EQ(header.call, static_cast<uint32_t>(X::kCall));
      EXPECT_GE(payload.size(), X::kFixedBytes);
      return true;
    });
    EXPECT_EQ(released, looks ? 0u : 1u) << name;
    EXPECT_FALSE(parked.any()) << name;
  }
  uint32_t made = 0;
  uint32_t driven = 0;
};

TEST_F(KeptBackTest, EveryCallThatNamesAHeldStreamIsKept) {
#define TUBE_DRIVE(name) drive<wire::name>();
  TUBE_FOR_EACH_CALL(TUBE_DRIVE)
#undef TUBE_DRIVE
  EXPECT_GE(driven, 30u);
}

}  // namespace
}  // namespace tube::proxy

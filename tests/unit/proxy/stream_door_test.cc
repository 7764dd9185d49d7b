// The door that every record passes before it is executed: nobody who names a stream goes around
// it.
#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include "protocol/visit.gen.h"
#include "proxy/session/stream_door.h"
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

struct Seen {
  uint32_t call = 0;
  std::vector<uint64_t> streams;
};

class StreamDoorTest : public SessionTest {
 protected:
  // Posts a record whose streams have ids of their own, and says what the door saw of it.
  template <class X>
  void drive() {
    X record{};
    const StreamFields fields(record);
    if (fields.at.empty()) return;
    ++driven;
    if (session->poisoned()) restart();
    std::vector<uint64_t> ids;
    for (const ptrdiff_t at : fields.at) {
      ids.push_back(make_id(++made % 100 + 1, 1));
      std::memcpy(reinterpret_cast<std::byte*>(&record) + at, &ids.back(), sizeof(uint64_t));
    }
    std::vector<Seen> passed;
    session->door().set_guard([&](const StreamDoor::Passing& passing) {
      test::fake().calls.push_back("door");
      passed.push_back({passing.header.call,
                        {passing.untrusted_streams.begin(), passing.untrusted_streams.end()}});
      return StreamDoor::Answer::kGo;
    });
    test::fake().calls.clear();
    const bool waits = X::kLane != wire::Lane::kPost;
    if (waits) shared::client_opens_reply(client_segment.reply(1));
    post_bytes(static_cast<uint32_t>(X::kCall), &record, X::kFixedBytes, 1,
               waits ? 1 : abi::kNoReply);
    const char* name = wire::call_name(static_cast<uint32_t>(X::kCall));
    ASSERT_EQ(passed.size(), 1u) << name;
    EXPECT_EQ(passed[0].call, static_cast<uint32_t>(X::kCall)) << name;
    EXPECT_EQ(passed[0].streams, ids) << name;
    EXPECT_EQ(test::fake().calls.front(), "door") << name << " reached the driver first";
    session->door().set_guard(nullptr);
  }
  uint32_t made = 0;
  uint32_t driven = 0;
};

TEST_F(StreamDoorTest, EveryCallThatNamesAStreamPassesBeforeItIsExecuted) {
#define TUBE_DRIVE(name) drive<wire::name>();
  TUBE_FOR_EACH_CALL(TUBE_DRIVE)
#undef TUBE_DRIVE
  EXPECT_GE(driven, 30u);
}

TEST(StreamDoor, NamesNothingOfARecordThatIsTooShortOrUnknown) {
  StreamDoor door;
  size_t named = 0;
  size_t asked = 0;
  door.set_guard([&](const StreamDoor::Passing& passing) {
    ++asked;
    named += passing.untrusted_streams.size();
    return StreamDoor::Answer::kGo;
  });
  const std::byte half[7] = {};
  abi::RecordHeader header{};
  for (uint32_t call : {static_cast<uint32_t>(wire::Call::tubeCopy), 0u, wire::kCallCount, ~0u}) {
    header.call = call;
    EXPECT_EQ(door.admit(header, half), StreamDoor::Answer::kGo);
  }
  EXPECT_EQ(asked, 4u);
  EXPECT_EQ(named, 0u);
  door.set_guard(nullptr);
  EXPECT_EQ(door.admit(header, half), StreamDoor::Answer::kGo);
  EXPECT_EQ(asked, 4u);
}

}  // namespace
}  // namespace tube::proxy

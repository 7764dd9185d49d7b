// libtube/tube.hpp without a proxy: what its owners give back, and when. "equal" when all is right.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "libtube/tube.hpp"

namespace {

#define EXPECT(truth)                                   \
  if (!(truth)) {                                       \
    fprintf(stderr, "line %d: %s\n", __LINE__, #truth); \
    exit(1);                                            \
  }

tube_result answer_of(const char* name) {
  try {
    (void)tube::get(name, TUBE_ANY, TUBE_NOW);
    return TUBE_OK;
  } catch (const tube::Error& error) {
    EXPECT(strstr(error.what(), name) != nullptr);
    return error.result();
  }
}

}  // namespace

int main() {
  {
    tube::Reserved given_up = tube::reserve(tube::Spec("a").bytes(64));
    EXPECT(answer_of("a") == TUBE_NOT_FOUND);
  }
  tube::Reserved out = tube::reserve(tube::Spec("a").array(2, 32, {4, 4}).group("g").consumers(2));
  EXPECT(out.bytes() == 64 && out.get().strides[0] == 4);
  for (int i = 0; i < 16; ++i) out.as<float>()[i] = 1.5f;
  out.seal(TUBE_NOW);
  EXPECT(!out);
  {
    tube::Object one = tube::wait("a", std::chrono::milliseconds(0), TUBE_ANY, TUBE_NOW);
    tube::Object moved = std::move(one);
    EXPECT(!one && moved.as<float>()[15] == 1.5f);
    EXPECT(answer_of("a") == TUBE_OK);  // the first of its two consumers
    moved.release();
    EXPECT(!moved);
  }
  EXPECT(answer_of("a") == TUBE_NOT_FOUND);
  try {
    (void)tube::wait("a", std::chrono::milliseconds(-1), TUBE_ANY, TUBE_NOW);
    EXPECT(false);
  } catch (const tube::Error& error) {
    EXPECT(error.result() == TUBE_NOT_FOUND);
  }
  // What is refused is held on, and given up at the end.
  {
    tube::Reserved twice = tube::reserve(tube::Spec("twice").bytes(64));
    const tube_object same = twice.get();
    EXPECT(tube_seal(&same, TUBE_NOW) == TUBE_OK);
    try {
      twice.seal(TUBE_NOW);
      EXPECT(false);
    } catch (const tube::Error& error) {
      EXPECT(error.result() == TUBE_INVALID && twice);
    }
  }
  tube::remove("twice");
  tube::put(tube::Spec("b").bytes(3).group("g"), "xy", TUBE_NOW);
  tube::store("c", "z", 2, TUBE_NOW);
  EXPECT(strcmp(tube::fetch("c", TUBE_NOW).as<char>(), "z") == 0);
  EXPECT(tube::remove_group("g") == 1 && answer_of("b") == TUBE_NOT_FOUND);
  tube::queue({"c", "not there yet"});
  tube::remove("c");
  EXPECT(tube::unique_id() != tube::unique_id() && !tube::connected());
  puts("equal");
  return 0;
}

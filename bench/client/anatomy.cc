#include "bench/client/anatomy.h"

#include "bench/client/common.h"

namespace bench {
namespace {

Anatomy copy(const char* name, size_t bytes, bool to_device) {
  Anatomy made{name, {}, {}};
  if (to_device) {
    made.call = [bytes](Lane& l) { CU(cuMemcpyHtoD(l.data, l.pageable.data(), bytes)); };
  } else {
    made.call = [bytes](Lane& l) { CU(cuMemcpyDtoH(l.pageable.data(), l.data, bytes)); };
  }
  return made;
}

void settle(Lane& lane) {
  size_t free_bytes, total_bytes;
  CU(cuCtxSynchronize());
  CU(cuMemGetInfo(&free_bytes,
                  &total_bytes));  // an answer that must come: nothing is on its way behind it
  lane.sync();
}

}  // namespace

const std::vector<Anatomy>& anatomies() {
  const auto sync = [](Lane& l) { l.sync(); };
  static const auto* list = new std::vector<Anatomy>{
      {"launch, synchronise", [](Lane& l) { l.launch(); }, sync},
      {"100 launches, synchronise",
       [](Lane& l) {
         for (int i = 0; i < 100; ++i) l.launch();
       },
       sync},
      {"graph of 100, synchronise", [](Lane& l) { l.launch_graph(); }, sync},
      {"launch, record, synchronise event",
       [](Lane& l) {
         l.launch();
         CU(cuEventRecord(l.end, l.stream));
       },
       [](Lane& l) { CU(cuEventSynchronize(l.end)); }},
      copy("4 KiB pageable to device", 4 << 10, true),
      copy("4 KiB device to pageable", 4 << 10, false),
      {"4 KiB pinned to device, synchronise",
       [](Lane& l) { CU(cuMemcpyHtoDAsync(l.data, l.pinned, 4 << 10, l.stream)); }, sync},
      copy("1 MiB pageable to device", 1 << 20, true),
  };
  return *list;
}

std::string take_apart(const Anatomy& anatomy, Lane& lane, int samples) {
  std::string out = "[";
  for (int i = -samples / 5 - 2; i < samples; ++i) {
    settle(lane);
    const int64_t before = now_ns();
    anatomy.call(lane);
    const int64_t returned = now_ns();
    if (anatomy.wait) anatomy.wait(lane);
    const int64_t complete = now_ns();
    if (i < 0) continue;
    out += (i == 0 ? "[" : ", [") + std::to_string(before) + ", " + std::to_string(returned) +
           ", " + std::to_string(complete) + "]";
  }
  settle(lane);
  return out + "]";
}

}  // namespace bench

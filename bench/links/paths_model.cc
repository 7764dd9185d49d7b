// What several NVLink paths carry against the direct way, without a GPU: a machine's topology, the
// paths that policies/paths/gpu_paths.h chooses, and virtual time; and how long a choice takes, in
// real time. One JSON object on standard output.
//
//   paths_model TOPOLOGY [SECONDS]   a preset or a file; virtual seconds of the part with company
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <random>

#include "bench/links/copy_model.h"

namespace tube::bench {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMiB = 1u << 20;
constexpr policies::Pieces::Options kPieces = {.least_bytes = kMiB, .most_bytes = 64 * kMiB};

uint64_t copy_ns(const ctl::Machine& machine, CopyRule rule, uint32_t from, uint32_t to,
                 uint64_t bytes) {
  CopyModel model(machine, rule, kPieces);
  model.begin(from, to, bytes, 0);
  model.run();
  return model.copies()[0].end_ns;
}

Json pair(const ctl::Machine& machine, uint32_t from, uint32_t to) {
  policies::GpuPaths paths(machine.nvlink);
  const policies::GpuPathSet set = *paths.open({.id = 1, .from = from, .to = to});
  const uint64_t host =
      std::min(ctl::host_bytes_per_s(machine, from), ctl::host_bytes_per_s(machine, to));
  const uint64_t link = machine.nvlink.bytes_per_s[from][to];
  Json found = {{"from", from},
                {"to", to},
                {"link_bytes_per_s", link},
                {"direct_bytes_per_s", link != 0 ? link : host},
                {"paths_bytes_per_s", set.through_host ? host : set.bytes_per_s},
                {"bound_bytes_per_s", max_flow(machine.nvlink, from, to)},
                {"paths", set.count},
                {"copies", Json::array()}};
  for (uint64_t bytes : {16 * kMiB, 64 * kMiB, 256 * kMiB, 1024 * kMiB})
    found["copies"].push_back({{"bytes", bytes},
                               {"direct_ns", copy_ns(machine, CopyRule::kDirect, from, to, bytes)},
                               {"paths_ns", copy_ns(machine, CopyRule::kPaths, from, to, bytes)}});
  return found;
}

// `at_once` transfers between GPUs drawn at random, each followed by another one.
uint64_t bytes_per_s_in_company(const ctl::Machine& machine, CopyRule rule, uint32_t at_once,
                                double seconds) {
  std::mt19937 random(at_once);
  CopyModel model(machine, rule, kPieces);
  const auto begin = [&] {
    const auto from = static_cast<uint32_t>(random() % machine.nvlink.gpus);
    const auto other = static_cast<uint32_t>(random() % (machine.nvlink.gpus - 1));
    model.begin(from, other + (other >= from ? 1 : 0), 256 * kMiB, model.now_ns());
  };
  model.on_end = [&](uint32_t) { begin(); };
  for (uint32_t i = 0; i < at_once; ++i) begin();
  model.run(static_cast<uint64_t>(seconds * 1e9));
  return static_cast<uint64_t>(static_cast<double>(model.done_bytes()) / seconds);
}

Json company(const ctl::Machine& machine, double seconds) {
  Json rows = Json::array();
  for (uint32_t at_once : {1u, 2u, 4u, 8u})
    rows.push_back({{"at_once", at_once},
                    {"direct_bytes_per_s",
                     bytes_per_s_in_company(machine, CopyRule::kDirect, at_once, seconds)},
                    {"paths_bytes_per_s",
                     bytes_per_s_in_company(machine, CopyRule::kPaths, at_once, seconds)}});
  return rows;
}

// The choice for one more transfer, `others` being under way.
Json choice(const ctl::Machine& machine, uint32_t others) {
  constexpr int kSamples = 20'000;
  std::mt19937 random(1);
  std::vector<int64_t> ns;
  const auto ask = [&](uint64_t id) {
    const auto from = static_cast<uint32_t>(random() % machine.nvlink.gpus);
    const auto to = static_cast<uint32_t>(random() % (machine.nvlink.gpus - 1));
    return policies::GpuTransfer{.id = id, .from = from, .to = to + (to >= from ? 1 : 0)};
  };
  for (int sample = 0; sample < kSamples; ++sample) {
    policies::GpuPaths paths(machine.nvlink);
    for (uint32_t i = 0; i < others; ++i) paths.open(ask(2 + i));
    const policies::GpuTransfer one = ask(1);
    const auto begin = std::chrono::steady_clock::now();
    paths.open(one);
    const auto end = std::chrono::steady_clock::now();
    ns.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
  }
  std::sort(ns.begin(), ns.end());
  return {{"others", others},
          {"samples", kSamples},
          {"p50_ns", ns[ns.size() / 2]},
          {"p99_ns", ns[ns.size() * 99 / 100]},
          {"max_ns", ns.back()}};
}

int run(const char* topology, double seconds) {
  const auto machine = ctl::load_machine(topology);
  if (!machine || machine->nvlink.gpus < 2) {
    std::fprintf(stderr, "paths_model: %s\n",
                 machine ? "fewer than two GPUs" : machine.error().message.c_str());
    return 1;
  }
  Json result = {{"topology", topology}, {"gpus", machine->nvlink.gpus}, {"pairs", Json::array()}};
  for (uint32_t a = 0; a < machine->nvlink.gpus; ++a)
    for (uint32_t b = 0; b < machine->nvlink.gpus; ++b)
      if (a != b) result["pairs"].push_back(pair(*machine, a, b));
  result["company"] = company(*machine, seconds);
  for (uint32_t others : {0u, 1u, 4u, 8u, 16u})
    result["choice"].push_back(choice(*machine, others));
  std::printf("%s\n", result.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace tube::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: paths_model TOPOLOGY [SECONDS]\n");
    return 2;
  }
  try {
    return tube::bench::run(argv[1], argc > 2 ? std::atof(argv[2]) : 1.0);
  } catch (const std::exception& error) {  // of the JSON
    std::fprintf(stderr, "paths_model: %s\n", error.what());
    return 1;
  }
}

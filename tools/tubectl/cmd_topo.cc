// tubectl topo: the GPUs of a machine, what their links to the host carry, and which reach each
// other, as text, JSON or a picture.
#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <set>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/machine.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

struct TopoOptions {
  std::string workflow, topology, svg;
  bool json = false;
};

// One machine, wherever it is known from. Rates in bytes a second; 0: not known.
struct Topo {
  struct Gpu {
    std::string name{}, uuid{};
    uint64_t up = 0, down = 0;
    std::vector<bool> reaches{};      // the other GPUs' memory
    std::vector<uint64_t> between{};  // over a link of the pair's own
  };
  std::vector<Gpu> gpus;
};

Topo topo_of(const Machine& machine) {
  Topo topo;
  for (uint32_t g = 0; g < machine.nvlink.gpus; ++g) {
    Topo::Gpu gpu{.name = machine.gpu_names[g]};
    gpu.up = gpu.down = host_bytes_per_s(machine, g);
    for (uint32_t other = 0; other < machine.nvlink.gpus; ++other) {
      gpu.between.push_back(machine.nvlink.bytes_per_s[g][other]);
      gpu.reaches.push_back(gpu.between.back() != 0);
    }
    topo.gpus.push_back(std::move(gpu));
  }
  return topo;
}

Topo topo_of(const Json& answer) {
  Topo topo;
  const Json gpus = answer.value("gpus", Json::array());
  for (const Json& each : gpus) {
    Topo::Gpu gpu{.name = text(each, "name"), .uuid = text(each, "uuid")};
    gpu.up = number(each, "to_gpu_bytes_per_s");
    gpu.down = number(each, "from_gpu_bytes_per_s");
    gpu.reaches.resize(gpus.size());
    gpu.between.resize(gpus.size());
    const Json peers = each.value("peers", Json::array());
    for (const Json& peer : peers)
      if (peer.is_number_unsigned() && peer.get<size_t>() < gpus.size())
        gpu.reaches[peer.get<size_t>()] = true;
    topo.gpus.push_back(std::move(gpu));
  }
  return topo;
}

std::string rate(uint64_t bytes_per_s) {
  return bytes_per_s == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(bytes_per_s) / 1e9);
}

// What one GPU's data to another goes over.
std::string way(const Topo& topo, size_t from, size_t to) {
  if (from == to) return "";
  const uint64_t link = topo.gpus[from].between[to];
  return link != 0 ? rate(link) : topo.gpus[from].reaches[to] ? "peer" : "host";
}

void print_topo(const Topo& topo) {
  Table links({"GPU", "NAME", "HOST TO GPU GB/S", "GPU TO HOST GB/S"}, "rlrr");
  std::vector<std::string> heading = {"GB/S FROM"};
  for (size_t g = 0; g < topo.gpus.size(); ++g) heading.push_back(fmt::format("TO {}", g));
  Table between(heading, "r" + std::string(topo.gpus.size(), 'r'));
  for (size_t g = 0; g < topo.gpus.size(); ++g) {
    const Topo::Gpu& gpu = topo.gpus[g];
    links.add({std::to_string(g), gpu.name, rate(gpu.up), rate(gpu.down)});
    std::vector<std::string> row = {std::to_string(g)};
    for (size_t other = 0; other < topo.gpus.size(); ++other) row.push_back(way(topo, g, other));
    between.add(row);
  }
  fmt::print("{}", links.str());
  if (topo.gpus.size() > 1) fmt::print("\n{}", between.str());
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '&') out += "&amp;";
    else out += c;
  }
  return out;
}

// GPUs on a circle around the host; a line between two that have a link or reach each other.
std::string picture(const Topo& topo) {
  constexpr double kSize = 640, kCentre = kSize / 2, kAround = 250, kBox = 34;
  struct Point {
    double x, y;
  };
  const auto place = [&](size_t g) {
    const double angle = 2 * M_PI * static_cast<double>(g) / double(topo.gpus.size()) - M_PI / 2;
    return Point{kCentre + kAround * std::cos(angle), kCentre + kAround * std::sin(angle)};
  };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {0}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"13\" text-anchor=\"middle\">\n<rect width=\"{0}\" height=\"{0}\" "
      "fill=\"white\"/>\n",
      kSize);
  const auto line = [&](Point a, Point b, const char* colour, const std::string& words) {
    out += fmt::format(
        "<line x1=\"{:.0f}\" y1=\"{:.0f}\" x2=\"{:.0f}\" y2=\"{:.0f}\" "
        "stroke=\"{}\" stroke-width=\"2\"/>\n",
        a.x, a.y, b.x, b.y, colour);
    if (!words.empty())
      out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", (a.x + 2 * b.x) / 3,
                         (a.y + 2 * b.y) / 3, words);
  };
  const auto box = [&](Point at, const std::string& words) {
    out += fmt::format(
        "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"6\" "
        "fill=\"#eef\" stroke=\"#447\"/>\n<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n",
        at.x - kBox, at.y - kBox / 2, 2 * kBox, kBox, at.x, at.y + 4, words);
  };
  const Point host{kCentre, kCentre};
  for (size_t a = 0; a < topo.gpus.size(); ++a)
    for (size_t b = a + 1; b < topo.gpus.size(); ++b)
      if (topo.gpus[a].reaches[b])
        line(place(a), place(b), "#7a7", topo.gpus[a].between[b] != 0 ? way(topo, a, b) : "");
  for (size_t g = 0; g < topo.gpus.size(); ++g) {
    const Topo::Gpu& gpu = topo.gpus[g];
    line(host, place(g), "#a77", rate(gpu.up) + " / " + rate(gpu.down));
  }
  box(host, "host");
  for (size_t g = 0; g < topo.gpus.size(); ++g) {
    box(place(g), fmt::format("GPU {}", g));
    out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" font-size=\"10\">{}</text>\n", place(g).x,
                       place(g).y + kBox, escaped(topo.gpus[g].name));
  }
  out += fmt::format(
      "<text x=\"{:.0f}\" y=\"{:.0f}\">GB/s: host to GPU / GPU to host, and between "
      "GPUs</text>\n</svg>\n",
      kCentre, kSize - 8);
  return out;
}

Json topo_json(const Topo& topo) {
  Json gpus = Json::array();
  for (size_t g = 0; g < topo.gpus.size(); ++g) {
    const Topo::Gpu& gpu = topo.gpus[g];
    Json peers = Json::array();
    for (size_t other = 0; other < topo.gpus.size(); ++other) {
      if (gpu.reaches[other])
        peers.push_back({{"gpu", other}, {"bytes_per_s", gpu.between[other]}});
    }
    gpus.push_back({{"index", g},
                    {"name", gpu.name},
                    {"uuid", gpu.uuid},
                    {"to_gpu_bytes_per_s", gpu.up},
                    {"from_gpu_bytes_per_s", gpu.down},
                    {"peers", std::move(peers)}});
  }
  return {{"ok", true}, {"gpus", std::move(gpus)}};
}

int topo(const TopoOptions& options) {
  Topo topo;
  if (options.topology.empty()) {
    const Answer answer = ask(options.workflow, "topo");
    if (!answer.ok()) return report_unusable(options.workflow, answer);
    topo = topo_of(answer.body);
  } else {
    const Result<Machine> machine = load_machine(options.topology);
    if (!machine) {
      fmt::print(stderr, "tubectl: topo: {}\n", machine.error().message);
      return kExitUsage;
    }
    topo = topo_of(*machine);
  }
  if (!options.svg.empty()) {
    std::ofstream file(options.svg);
    file << picture(topo);
    if (!file.flush()) {
      fmt::print(stderr, "tubectl: topo: {} cannot be written\n", options.svg);
      return kExitProblem;
    }
  }
  if (options.json) fmt::print("{}\n", topo_json(topo).dump(2));
  else print_topo(topo);
  return kExitOk;
}

}  // namespace

void add_topo(Verb& root) {
  auto options = std::make_shared<TopoOptions>();
  root.verb("topo", "the GPUs of a proxy, what their links carry, and which reach each other")
      .workflow(options->workflow)
      .text("--topology", options->topology, "NAME",
            "a preset of the simulated GPU or a file, instead of a proxy's machine")
      .text("--svg", options->svg, "FILE", "draws a picture, too")
      .json(options->json)
      .footer(
          "A proxy knows what a link carries once copies have filled its lane while no other proxy "
          "used it; before\nthat there is a -. Between GPUs: GB/s of the pair's own link where a "
          "topology says it, else peer (they reach\neach other's memory) or host (data goes "
          "through host memory).\n\nExamples:\n  tubectl topo\n  tubectl topo --topology dgx-v100 "
          "--svg dgx.svg\n  tubectl topo --json")
      .action([options] { return topo(*options); });
}

}  // namespace tube::ctl

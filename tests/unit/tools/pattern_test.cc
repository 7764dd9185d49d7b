// What tubectl placement reads: patterns, and machines' links out of topologies.
#include "tools/tubectl/pattern.h"

#include <gtest/gtest.h>

#include "tools/tubectl/machine.h"

namespace tube::ctl {
namespace {

std::string problem_of(const std::string& toml) {
  const Result<Pattern> pattern = parse_pattern(toml);
  return pattern ? "" : pattern.error().message;
}

TEST(Pattern, ReadsWhatIsPassedAndShares) {
  const Result<Pattern> read = parse_pattern(
      "# a shop\n"
      "passes = [\n"
      "  \"host:decode:100M\",  # K, M, G\n"
      "  \"decode:detect:25M\", \"detect:host:1K\",\n"
      "]\n"
      "[shares]\n"
      "detect = 0.25 # the end");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->functions, (std::vector<std::string>{"decode", "detect"}));
  ASSERT_EQ(read->plan.passes, 3u);
  EXPECT_EQ(read->plan.pass[0].from, policies::kHost);
  EXPECT_EQ(read->plan.pass[1].to, 1u);
  EXPECT_EQ(read->plan.pass[1].bytes, 25u << 20);
  EXPECT_EQ(read->plan.share[0], policies::kWholeGpu);
  EXPECT_EQ(read->plan.share[1], policies::kWholeGpu / 4);
}

TEST(Pattern, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(problem_of(""), "no passes");
  EXPECT_EQ(problem_of("\npasses = \"a:b:1\""),
            "line 2: passes is a list: [\"FROM:TO:BYTES\", ..]");
  EXPECT_EQ(problem_of("passes = [\"a:b\"]"),
            "line 1: a:b: a pass is FROM:TO:BYTES, e.g. decode:detect:25M");
  EXPECT_EQ(problem_of("passes = [\"a:b:x\"]"), "line 1: a:b:x: x is no size, e.g. 25M");
  EXPECT_EQ(problem_of("passes = [\"a:a:1\"]"), "line 1: a:a:1: from a function to itself");
  EXPECT_EQ(problem_of("passes = [7]"), "line 1: a pass is a text: \"FROM:TO:BYTES\"");
  EXPECT_EQ(problem_of("passes = [\"a:b:1\"").substr(0, 7), "line 1:") << "the library's words";
  EXPECT_EQ(problem_of("\npasses = [\"a:b:1").substr(0, 7), "line 2:");
  EXPECT_EQ(problem_of("speed = 1"), "line 1: no such key: speed");
  EXPECT_EQ(problem_of("passes = [\"a:b:1\"]\n[gpus]"), "line 2: no such key: gpus");
  EXPECT_EQ(problem_of("passes = [\"a:b:1\"]\n[shares]\nc = 1"),
            "line 3: c: no pass names this function");
  EXPECT_EQ(problem_of("passes = [\"a:b:1\"]\n[shares]\na = 2"),
            "line 3: a: a share is a number from 0 to 1");
}

TEST(Pattern, StopsAtTheMostFunctionsAndPasses) {
  Pattern pattern;
  for (uint32_t f = 0; f < policies::kMaxFunctions; ++f)
    EXPECT_TRUE(add_pass("host:f" + std::to_string(f) + ":1", &pattern));
  EXPECT_FALSE(add_pass("host:one_more:1", &pattern));
  while (pattern.plan.passes < policies::kMaxPasses) EXPECT_TRUE(add_pass("f0:f1:1", &pattern));
  EXPECT_FALSE(add_pass("f0:f1:1", &pattern));
}

TEST(Machine, LinksOfAPreset) {
  const Result<Machine> m = load_machine("dgx-v100");
  ASSERT_TRUE(m);
  EXPECT_EQ(m->nvlink.gpus, 8u);
  EXPECT_EQ(m->nvlink.bytes_per_s[0][3], 50'000'000'000u);
  EXPECT_EQ(m->nvlink.bytes_per_s[3][0], 50'000'000'000u);
  EXPECT_EQ(m->host.link[3].pcie_switch, m->host.link[2].pcie_switch);
  EXPECT_NE(m->host.link[3].pcie_switch, m->host.link[4].pcie_switch);
  EXPECT_EQ(load_machine("hgx-h200")->nvlink.ports_bytes_per_s[0], 450'000'000'000u);
}

TEST(Machine, LinksOfATopologyFilesText) {
  sim::TopologySpec spec;
  std::string error;
  ASSERT_TRUE(
      sim::parse_topology("device count=2 pcie=25e9 switch=7000\n"
                          "nvlink 0 1 50e9\nnvlink_ports 40e9\nswitch_uplink 20e9\n",
                          &spec, &error))
      << error;
  const Result<Machine> m = machine_of(spec);
  ASSERT_TRUE(m);
  EXPECT_LT(m->host.link[1].pcie_switch, 2u);
  EXPECT_EQ(m->nvlink.ports_bytes_per_s[1], 40'000'000'000u);
  EXPECT_EQ(host_bytes_per_s(*m, 0), 20'000'000'000u);
  EXPECT_EQ(placement_gpus(*m, Between::kPaths).between_bytes_per_s[0][1], 40'000'000'000u);
  spec.devices.resize(17, spec.devices[0]);
  EXPECT_FALSE(machine_of(spec));
  spec.devices.clear();
  EXPECT_FALSE(machine_of(spec));
}

}  // namespace
}  // namespace tube::ctl

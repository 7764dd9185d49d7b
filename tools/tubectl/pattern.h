// How the functions of a workflow pass data, as written by people: "FROM:TO:BYTES" for each pass,
// where FROM or TO can be `host`, on the command line or in a TOML file:
//
//   passes = [
//     "host:decode:100M",     # K, M, G: powers of 1024
//     "decode:detect:25M",
//   ]
//   [shares]                  # of a GPU that a function takes; 1 where nothing is said
//   decode = 0.5
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "policies/paths/placement.h"

namespace tube::ctl {

struct Pattern {
  std::vector<std::string> functions;  // names, in the order of their first mention
  policies::PlacementPattern plan;
};

// Adds one pass, and the functions that it names for the first time.
Status add_pass(const std::string& text, Pattern* pattern);
// The share of a function that some pass names.
Status set_share(const std::string& function, double share, Pattern* pattern);
// Error: the line and what is wrong with it.
Result<Pattern> parse_pattern(const std::string& toml);

}  // namespace tube::ctl

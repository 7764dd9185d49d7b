// The little language of the scenarios: each word is one step, done with what the words before it
// made. words.cc has the table.
#pragma once

#include <cuda.h>

#include <map>
#include <string>
#include <vector>

namespace holds {

// Where the words work: a GPU's primary context.
struct Place {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;   // kernels, memsets and copies write into it
  CUstream work = nullptr;  // where a step's work goes unless its word says otherwise
};

// What the words work on. A word that makes something puts it where the next one looks for it;
// nothing is ever given back at the end, since the process ends with its scenario.
struct Scene : Place {
  CUdevice device = 0;
  std::map<CUdevice, Place> left;  // of the GPUs that were used before
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  std::map<std::string, CUfunction> kernels;  // by name, as looked up last
  CUdeviceptr allocated = 0;
  void* pinned = nullptr;
  CUgraph graph = nullptr;
  std::vector<CUgraphExec> instances;
  std::vector<CUstream> streams;
  CUarray array = nullptr;
  CUgreenCtx green = nullptr;
  double patience_s = 0.1;  // how long work may take before it is said to stand
};

struct Word {
  const char* name;  // as it is written: "launch:KERNEL"; what follows the colon is the argument
  const char* meaning;
  void (*act)(Scene& scene, const std::string& argument);
};
const std::vector<Word>& words();

// On device 0.
Scene set_up(double patience_s);
// Does one step, "launch:plain". Ends the process when it cannot be done.
void do_step(Scene& scene, const std::string& step);

// Is it a step that stands in another thread?
bool stands(const std::string& step);

// Prints why behind what stands on the line already, and ends the process: a scenario is worth
// nothing after a call that failed.
[[noreturn]] void give_up(const std::string& why);
void check(CUresult code);
#define CU(call) ::holds::check(call)

}  // namespace holds

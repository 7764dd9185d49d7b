// What a conformance case needs. A case is a small CUDA program: one behaviour, in a process of its
// own, that prints what it observed.
//
//   CASE(alloc_zero_bytes) { Gpu gpu; CUdeviceptr p; SHOW(cuMemAlloc(&p, 0)); }
//
// The runner (`run`) executes each case natively and through Tube and compares what it printed and
// how it ended, and holds the native run on the simulated GPU against the transcript of a real one
// (expected/). So a case prints only what every GPU and every run shows alike: codes by name,
// values, order; no addresses, times, ids, sizes that depend on the device. A case that exits with
// 1 is broken (CU and EXPECT do that): what may fail is to be shown with SHOW. 77 (SKIP) says it
// cannot run here.
//
// All of the driver's ABI versions are visible. A plain name means its newest version, as in any
// program (cuMemAlloc is cuMemAlloc_v2); the version that was first called by the plain name is
// NAME_v1 (cuMemAlloc_v1), and _ptsz and _ptds forms have their own names.
#pragma once

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <cudaProfiler.h>

#include "tests/conformance/versions.gen.h"
#include "tests/programs/common.h"

namespace conformance {

enum class Kind {
  kOrdinary,
  kFaulting,    // ends its context (a sticky error): gets a proxy of its own
  kTwoDevices,  // wants two devices; on the simulated GPU it gets them
};

// One registered case. Static objects of the chapter's file; listed in the order of the file.
struct Case {
  Case(const char* name, Kind kind, void (*body)());
  const char* name;
  Kind kind;
  void (*body)();
  Case* next = nullptr;
};

// What CASES_HOLD_STREAMS declares. a_stream_waits() is for what makes one wait; it ends the
// program where nothing was declared.
bool declare_holding();
void a_stream_waits();
// Prints why and ends the program with 77: this machine cannot show the behaviour.
[[noreturn]] void skip(const char* why);
// The entry point of this exact exported name as the loader finds it, or nullptr.
void* exported(const char* symbol);
// The same with its type: symbol_as<decltype(cuMemAlloc)>("cuMemAlloc_v2"). Ends the program when
// it is not there.
template <typename Function>
Function* symbol_as(const char* symbol) {
  auto* found = reinterpret_cast<Function*>(exported(symbol));
  expect(found != nullptr, symbol, __FILE__, __LINE__);
  return found;
}

}  // namespace conformance

#define TUBE_CASE(name, kind)                                                                 \
  static void case_##name();                                                                  \
  static const conformance::Case registered_##name(#name, conformance::Kind::kind, case_##name); \
  static void case_##name()
#define CASE(name) TUBE_CASE(name, kOrdinary)
#define FAULTING_CASE(name) TUBE_CASE(name, kFaulting)
#define TWO_DEVICES_CASE(name) TUBE_CASE(name, kTwoDevices)
// Once, at file scope: cases of this chapter let streams wait for what the program does later. All
// functions of a proxy share a context's 32 hardware queues, so that on a GPU only few such cases
// run at once.
#define CASES_HOLD_STREAMS static const bool holds_streams [[maybe_unused]] = conformance::declare_holding()
#define SKIP(why) conformance::skip(why)

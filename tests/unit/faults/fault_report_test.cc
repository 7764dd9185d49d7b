// Who may have ended a context: what launches leave behind, and the line made of it.
#include <gtest/gtest.h>

#include "proxy/launch/launch_notes.h"
#include "proxy/server/fault_report.h"
#include "sharedmem/abi.h"

namespace tube::proxy {
namespace {

using Names = std::vector<std::string>;

const std::string kA = "a", kB = "b", kC = "c";

TEST(LaunchNote, WhatTheGpuHasPassedIsOver) {
  LaunchNote note;
  uint64_t word = 0;
  EXPECT_EQ(note.in_flight(), Names());
  note.launched(&kA);
  EXPECT_EQ(note.in_flight(), Names({"a"}));
  note.marked(&word, 1);
  EXPECT_EQ(note.in_flight(), Names({"a"}));
  word = 1;
  EXPECT_EQ(note.in_flight(), Names());
  note.launched(&kB);
  note.marked(&word, 2);
  EXPECT_EQ(note.in_flight(), Names({"b"})) << "a is known to be over";
  note.launched(&kC);
  EXPECT_EQ(note.in_flight(), Names({"c", "b"}));
  word = 2;
  EXPECT_EQ(note.in_flight(), Names({"c"}));
}

TEST(LaunchNote, TheNewestAreKeptAndEachIsNamedOnce) {
  LaunchNote note;
  for (const std::string* name : {&kA, &kB, &kC, &kB, &kB, &kC}) note.launched(name);
  EXPECT_EQ(note.in_flight(), Names({"c", "b"}));
}

TEST(LaunchNotes, AStreamThatIsGoneIsStillNamed) {
  LaunchNotes notes;
  notes.add()->launched(&kA);
  notes.add()->launched(&kB);
  EXPECT_EQ(notes.in_flight(), Names({"a", "b"}));
}

TEST(FaultText, NamesTheOneThatDidIt) {
  const Fault fault{.gpu = 1,
                    .workflow = "shop",
                    .error = "E (700)",
                    .reporter = "f",
                    .suspects = {{"bad", 7, {"_Z4boomPi", "b", "c"}, true}}};
  EXPECT_EQ(
      fault_text(fault),
      "workflow `shop`, GPU 1: kernel `boom`, kernel `b` or kernel `c` of function `bad` (pid 7) "
      "ended the context of all functions: E (700)");
}

TEST(FaultText, NamesAllThatMayHaveDoneIt) {
  Fault fault{
      .gpu = 0, .workflow = "w", .error = "E", .reporter = "function `r` (pid 3)", .suspects = {}};
  EXPECT_EQ(fault_text(fault),
            "workflow `w`, GPU 0: a kernel that is not known ended the context of "
            "all functions: E, reported by function `r` (pid 3)");
  fault.suspects = {{"f", 1, {"a"}, true}, {"g", 2, {"a kernel of a graph"}, false}};
  EXPECT_EQ(
      fault_text(fault),
      "workflow `w`, GPU 0: one of these ended the context of all functions: E: kernel `a` of "
      "function `f` (pid 1); a kernel of a graph of function `g` (pid 2)");
  for (int i = 0; i < 9; ++i) fault.suspects.push_back({std::string(200, 'n'), i, {kA}, false});
  EXPECT_LT(fault_text(fault).size(), abi::kFaultTextBytes);
}

}  // namespace
}  // namespace tube::proxy

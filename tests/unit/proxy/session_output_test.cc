// A session's account of what its kernels may write, without a session.
#include <gtest/gtest.h>

#include "protocol/wire.gen.h"
#include "proxy/code/module_cache.h"
#include "proxy/gpu/context_gate.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/context_shares.h"
#include "proxy/session/output.h"
#include "sharedmem/accessors.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

class SessionOutput : public ::testing::Test {
 protected:
  SessionOutput()
      : driver(test::make_fake_driver()), gpus(driver), contexts(driver, gpus, objects, 7) {
    EXPECT_TRUE(gpus.open().ok());
    contexts.open();
    Result<shared::Segment> made = shared::Segment::create(1);
    EXPECT_TRUE(made.ok());
    segment = made.take();
    CUresult error = CUDA_SUCCESS;
    op.state = contexts.stream(wire::kLegacyStream, 1, &error);
    op.stream = op.state->stream;
  }
  CUresult launch(uint32_t writes, uint64_t sequence) {
    return output.launch(
        op, writes, sequence,
        [this] {
          ++launched;
          return CUDA_SUCCESS;
        },
        LaunchGate::kNone);
  }

  Driver driver;
  Gpus gpus;
  Objects objects;
  ContextShares contexts;
  shared::Segment segment;
  Output output{driver, gpus, contexts, nullptr, segment, 7};
  StreamOp op;
  int launched = 0;
};

TEST_F(SessionOutput, AKernelWithAssertionsMayHaveFailedUntilAMarkBehindItIsReached) {
  EXPECT_FALSE(output.may_have_asserted());
  EXPECT_EQ(launch(wire::kKernelPrints, 4), CUDA_SUCCESS);
  EXPECT_FALSE(output.may_have_asserted()) << "it only prints";
  EXPECT_EQ(launch(wire::kKernelAsserts, 5), CUDA_SUCCESS);
  EXPECT_TRUE(output.may_have_asserted());
  op.state->mark(4, 3, 10);
  shared::store_word(segment.word(3), 10);
  EXPECT_TRUE(output.may_have_asserted()) << "the mark came before it";
  op.state->mark(6, 3, 11);
  EXPECT_TRUE(output.may_have_asserted()) << "the GPU is not there";
  shared::store_word(segment.word(3), 11);
  EXPECT_FALSE(output.may_have_asserted());
  EXPECT_EQ(launched, 2);
}

TEST_F(SessionOutput, WhatIsCapturedWritesWhenItsGraphIsLaunched) {
  contexts.capture_started();
  test::fake().capturing = op.stream;
  EXPECT_EQ(launch(wire::kKernelAsserts, 5), CUDA_SUCCESS);
  EXPECT_EQ(output.graph_writes(), uint32_t{wire::kKernelAsserts});
  EXPECT_FALSE(output.may_have_asserted());
  output.graph_gains(wire::kKernelPrints);
  EXPECT_EQ(output.graph_writes(), uint32_t{wire::kKernelAsserts | wire::kKernelPrints});
}

TEST_F(SessionOutput, ThereIsNoTextWhereNoGpuFailedAnAssertion) {
  output.fetch_assertion();
  EXPECT_FALSE(output.assertion_is_left());
  EXPECT_EQ(output.take_assertion(100), "");
}

}  // namespace
}  // namespace tube::proxy

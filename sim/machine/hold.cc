#include "sim/machine/hold.h"

#include <algorithm>

namespace tube::sim {
namespace {

void collect_pending(const Context& context, std::vector<FencePtr>* pending) {
  for (auto& lane : context.lanes)
    if (lane->tail && !lane->tail->done) pending->push_back(lane->tail);
  if (context.legacy->tail && !context.legacy->tail->done) pending->push_back(context.legacy->tail);
}

}  // namespace

void hold(Lock& lock, Context* of) {
  Context* context = base_context(of);
  Op op;
  collect_pending(*context, &op.waits);
  for (const Context* green : context->greens) collect_pending(*green, &op.waits);
  if (const FencePtr before = barrier_of(context)) op.waits.push_back(before);
  if (op.waits.empty()) return;
  // Not among the context's lanes: waiting for the context means waiting for its work, and this is
  // none.
  auto lane = std::make_shared<Lane>();
  lane->context = context;
  context->barrier = submit(lock, lane, std::move(op));
}

FencePtr barrier_of(Context* of) {
  FencePtr& barrier = base_context(of)->barrier;
  if (barrier && barrier->done) barrier = nullptr;
  return barrier;
}

void note_loaded(Context* of, const ptx::Module& code) {
  Context* context = base_context(of);
  KernelNeeds most;
  for (const ptx::Kernel& kernel : code.kernels())
    most = std::max(most, KernelNeeds{kernel.prints, kernel.stack_bytes});
  if (most <= context->loaded) return;
  context->loaded = most;
  context->unsettled = true;
}

void unsettle(Context* context) { base_context(context)->unsettled = true; }

void hold_for_kernel(Lock& lock, Context* of, bool prints) {
  Context* context = base_context(of);
  if (!context->unsettled && (!prints || context->launched.prints)) return;
  context->unsettled = false;
  context->launched.prints |= prints;
  hold(lock, context);
}

void provide_local(Lock& lock, Context* of, uint32_t bytes) {
  Context* context = base_context(of);
  if (bytes <= context->launched.local_bytes) return;
  (void)quiesce(lock, of);
  context->launched.local_bytes = std::max(context->launched.local_bytes, bytes);
}

void prepare_launch(Lock& lock, Context* context, const ptx::Kernel& kernel) {
  const KernelNeeds needs{kernel.prints, kernel.local_bytes};
  if (needs.local_bytes > base_context(context)->launched.local_bytes) {
    provide_local(lock, context, needs.local_bytes);
    wait_for_quiescing(lock, context);
  }
  hold_for_kernel(lock, context, needs.prints);
}

}  // namespace tube::sim

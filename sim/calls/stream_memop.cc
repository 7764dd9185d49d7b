// Stream memory operations: write a word when the stream gets there, or hold the stream until a
// word has a value.
//
// Words may lie in device memory or in registered host memory that another process maps, so a wait
// can only poll; the engine's poller does that (5 us to 500 us between looks). Stores are release,
// loads acquire, as on the real device, where a write without the NO_MEMORY_BARRIER flag is ordered
// after everything before it in the stream.
#include "sim/graphs/capture.h"
#include "sim/machine/copy_engines.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

bool compare(uint64_t word, uint64_t value, unsigned flags, bool wide) {
  switch (flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return wide ? static_cast<int64_t>(word - value) >= 0
                  : static_cast<int32_t>(static_cast<uint32_t>(word) -
                                         static_cast<uint32_t>(value)) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return word == value;
    case CU_STREAM_WAIT_VALUE_AND: return (word & value) != 0;
    default: return wide ? ~(word | value) != 0 : static_cast<uint32_t>(~(word | value)) != 0;
  }
}

Op wait_op(const CUstreamBatchMemOpParams& p) {
  bool wide = p.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  uint64_t address = p.waitValue.address, value = wide ? p.waitValue.value64 : p.waitValue.value;
  unsigned flags = p.waitValue.flags;
  Op op;
  op.condition = [=] {
    if (!state().map.find(address))
      return true;  // freed under the stream: do not touch, do not hang
    uint64_t word = wide ? __atomic_load_n(reinterpret_cast<uint64_t*>(address), __ATOMIC_ACQUIRE)
                         : __atomic_load_n(reinterpret_cast<uint32_t*>(address), __ATOMIC_ACQUIRE);
    return compare(word, value, flags, wide);
  };
  return op;
}

Op write_op(const CUstreamBatchMemOpParams& p) {
  bool wide = p.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  uint64_t address = p.writeValue.address, value = wide ? p.writeValue.value64 : p.writeValue.value;
  Op op;
  op.in_place = true;
  op.is_word = true;
  op.body = [=]() -> CUresult {
    if (!state().map.find(address)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (wide) __atomic_store_n(reinterpret_cast<uint64_t*>(address), value, __ATOMIC_RELEASE);
    else
      __atomic_store_n(reinterpret_cast<uint32_t*>(address), static_cast<uint32_t>(value),
                       __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
  };
  return op;
}

Op copy_op(Context* context, const CopyWork& w) {
  Op op;
  op.body = [context, w] { return run_copy(context, w); };
  op.transfer = engine_transfer(*context, w);
  return op;
}

Op host_op(Context* context, const HostWork& w) {
  Op op;
  op.run_on_error = w.callback != nullptr;
  op.body = [context, w]() -> CUresult {
    thread().in_callback = true;
    if (w.callback != nullptr) w.callback(w.stream, context->error.load(), w.data);
    else w.function(w.data);
    thread().in_callback = false;
    return CUDA_SUCCESS;
  };
  return op;
}

}  // namespace

CUresult check_mem_ops(Context* context, const CUstreamBatchMemOpParams* ops, unsigned count) {
  if ((ops == nullptr && count != 0) || count > 256) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    uint64_t width = 0, begin = 0, end = 0;
    switch (ops[i].operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_32: width = 4; break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64: width = 8; break;
      case CU_STREAM_MEM_OP_BARRIER: continue;
      case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_ERROR_NOT_SUPPORTED;  // attribute 98
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t address = ops[i].waitValue.address;
    bool write = ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                 ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    if (address % width != 0) return CUDA_ERROR_INVALID_VALUE;
    const unsigned flags = ops[i].waitValue.flags;
    if (!write && (flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (write ? flags != 0 : (flags & ~3u) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!state().map.accessible(address, width, write, accessor_of(*context, true), &begin, &end))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

std::vector<Op> make_ops(Context* context, const Work& work) {
  std::vector<Op> ops;
  if (auto* w = std::get_if<MemOpWork>(&work)) {
    for (auto& p : w->ops) {
      bool waits = p.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                   p.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
      bool writes = p.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                    p.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
      ops.push_back(waits ? wait_op(p) : writes ? write_op(p) : Op{});
    }
    return ops;
  }
  Op op;
  if (auto* k = std::get_if<KernelWork>(&work)) {
    op.body = [context, w = *k] { return run_kernel(context, w); };
    const CopyEngines* const engines = state().copy_engines.get();
    if (engines != nullptr && engines->deals_blocks(context->device->physical))
      op.grid = Grid{context->device->physical, uint64_t{k->grid[0]} * k->grid[1] * k->grid[2],
                     sms_of(*context)};
  } else if (auto* c = std::get_if<CopyWork>(&work)) op = copy_op(context, *c);
  else if (auto* m = std::get_if<MemsetWork>(&work))
    op.body = [context, w = *m] { return run_memset(context, w); };
  else if (auto* h = std::get_if<HostWork>(&work)) op = host_op(context, *h);
  else if (auto* f = std::get_if<FreeWork>(&work); f != nullptr && f->return_to_pool)
    op.body = [address = f->address] { return finish_pool_free(address); };
  ops.push_back(std::move(op));
  return ops;
}

}  // namespace tube::sim

using namespace tube::sim;

static CUresult mem_ops(CUstream hStream, unsigned count, const CUstreamBatchMemOpParams* params,
                        Context* context) {
  Lock lock(state().mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, hStream, &stream)) return r;
  if (count == 0) return CUDA_SUCCESS;
  if (CUresult r = check_mem_ops(stream->context, params, count)) return r;
  MemOpWork work;
  work.ops.assign(params, params + count);
  return issue(lock, stream, std::move(work));
}

static CUresult one_mem_op(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr addr,
                           uint64_t value, unsigned flags, Context* context) {
  CUstreamBatchMemOpParams p{};
  p.operation = operation;
  p.waitValue.operation = operation;  // wait and write have one layout
  p.waitValue.address = addr;
  p.waitValue.value64 = value;
  p.waitValue.flags = flags;
  return mem_ops(stream, 1, &p, context);
}

#define SIM_MEM_OP(name, operation, type)                                                    \
  SIM_API CUresult name(CUstream stream, CUdeviceptr addr, type value, unsigned int flags) { \
    SIM_ENTER_STREAM(context, stream);                                                       \
    return one_mem_op(stream, operation, addr, value, flags, context);                       \
  }
SIM_MEM_OP(cuStreamWaitValue32_v2, CU_STREAM_MEM_OP_WAIT_VALUE_32, cuuint32_t)
SIM_MEM_OP(cuStreamWaitValue64_v2, CU_STREAM_MEM_OP_WAIT_VALUE_64, cuuint64_t)
SIM_MEM_OP(cuStreamWriteValue32_v2, CU_STREAM_MEM_OP_WRITE_VALUE_32, cuuint32_t)

// The first versions: no longer supported, which attributes 92 to 94 say.
#define SIM_OLD_MEM_OP(name, type)                                   \
  SIM_API CUresult name(CUstream, CUdeviceptr, type, unsigned int) { \
    SIM_ENTER(kContext);                                             \
    return CUDA_ERROR_NOT_SUPPORTED;                                 \
  }
SIM_OLD_MEM_OP(cuStreamWaitValue32, cuuint32_t)
SIM_OLD_MEM_OP(cuStreamWaitValue64, cuuint64_t)
SIM_OLD_MEM_OP(cuStreamWriteValue32, cuuint32_t)
SIM_OLD_MEM_OP(cuStreamWriteValue64, cuuint64_t)
SIM_MEM_OP(cuStreamWriteValue64_v2, CU_STREAM_MEM_OP_WRITE_VALUE_64, cuuint64_t)

SIM_API CUresult cuStreamBatchMemOp(CUstream, unsigned int, CUstreamBatchMemOpParams*,
                                    unsigned int) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_NOT_SUPPORTED;
}
SIM_API CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                       CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  SIM_ENTER_STREAM(context, stream);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return mem_ops(stream, count, paramArray, context);
}

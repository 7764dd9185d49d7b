// Stream memory operations: posted when the word surely is one of ours and the flags are plain;
// otherwise the driver's answer is waited for, so that a refusal shows at the call. The first
// versions are refused, as by every driver that reports attribute 92 as 0.
#include "hook/memory/copy.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

bool surely_good(CUdeviceptr address, uint32_t width, bool plain_flags) {
  return plain_flags && address % width == 0 && surely_valid(address, width, nullptr);
}

template <class Message, class Value>
CUresult value_op(CUstream handle, CUdeviceptr address, Value value, unsigned flags,
                  bool plain_flags) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(handle, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = capture_broken(stream); r != CUDA_SUCCESS) return r;
  const bool sure = surely_good(address, sizeof value, plain_flags);
  Request<Message> r(stream);
  r->stream = stream->id;
  r->addr = address;
  r->value = value;
  r->flags = flags;
  return sure ? r.post() : r.call();
}

bool surely_good(const CUstreamBatchMemOpParams& op) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return surely_good(op.writeValue.address, 4, op.writeValue.flags == 0);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return surely_good(op.writeValue.address, 8, op.writeValue.flags == 0);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return surely_good(op.waitValue.address, 4, op.waitValue.flags <= CU_STREAM_WAIT_VALUE_NOR);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return surely_good(op.waitValue.address, 8, op.waitValue.flags <= CU_STREAM_WAIT_VALUE_NOR);
    default: return false;
  }
}

CUresult first_version() {
  const CUresult r = guard(Needs::kContext);
  return r != CUDA_SUCCESS ? r : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
  return value_op<wire::cuStreamWriteValue32_v2>(stream, addr, value, flags, flags == 0);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
  return value_op<wire::cuStreamWriteValue64_v2>(stream, addr, value, flags, flags == 0);
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return value_op<wire::cuStreamWaitValue32_v2>(stream, addr, value, flags,
                                                flags <= CU_STREAM_WAIT_VALUE_NOR);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return value_op<wire::cuStreamWaitValue64_v2>(stream, addr, value, flags,
                                                flags <= CU_STREAM_WAIT_VALUE_NOR);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  constexpr unsigned kMost = 256;
  CUresult error = CUDA_SUCCESS;
  Stream* s = find_stream(stream, &error);
  if (s == nullptr) return error;
  if (count > kMost || flags != 0 || (paramArray == nullptr && count != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  if (const CUresult r = capture_broken(s); r != CUDA_SUCCESS) return r;
  bool sure = true;
  for (unsigned i = 0; i < count; ++i) sure = sure && surely_good(paramArray[i]);
  const auto bytes = static_cast<uint32_t>(count * sizeof *paramArray);
  Request<wire::cuStreamBatchMemOp_v2> r(s, blob_room(bytes));
  r->stream = s->id;
  r->count = count;
  r->flags = flags;
  r.put(&wire::cuStreamBatchMemOp_v2::paramArray, paramArray, bytes);
  return sure ? r.post() : r.call();
}

CUresult cuStreamWriteValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned int) {
  return first_version();
}
CUresult cuStreamWriteValue64(CUstream, CUdeviceptr, cuuint64_t, unsigned int) {
  return first_version();
}
CUresult cuStreamWaitValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned int) {
  return first_version();
}
CUresult cuStreamWaitValue64(CUstream, CUdeviceptr, cuuint64_t, unsigned int) {
  return first_version();
}
CUresult cuStreamBatchMemOp(CUstream, unsigned int, CUstreamBatchMemOpParams*, unsigned int) {
  return first_version();
}

}  // namespace tube::hook

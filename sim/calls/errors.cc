// cuGetErrorName and cuGetErrorString: every CUresult of cuda.h 13.0.
#include "sim/machine/state.h"

namespace tube::sim {
namespace {

struct Error {
  CUresult code;
  const char* name;
  const char* text;
};
#define SIM_ERROR(code, text) \
  { code, #code, text }

constexpr Error kErrors[] = {
    SIM_ERROR(CUDA_SUCCESS, "no error"),
    SIM_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    SIM_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    SIM_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    SIM_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    SIM_ERROR(CUDA_ERROR_PROFILER_DISABLED,
              "profiler disabled while using external profiling tool"),
    SIM_ERROR(CUDA_ERROR_PROFILER_NOT_INITIALIZED,
              "profiler not initialized: call cudaProfilerInitialize()"),
    SIM_ERROR(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started"),
    SIM_ERROR(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped"),
    SIM_ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    SIM_ERROR(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
              "API call is not supported in the installed CUDA driver"),
    SIM_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    SIM_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    SIM_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    SIM_ERROR(CUDA_ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license"),
    SIM_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    SIM_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    SIM_ERROR(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"),
    SIM_ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    SIM_ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    SIM_ERROR(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped"),
    SIM_ERROR(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    SIM_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU,
              "no kernel image is available for execution on the device"),
    SIM_ERROR(CUDA_ERROR_ALREADY_ACQUIRED, "resource already acquired"),
    SIM_ERROR(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    SIM_ERROR(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "resource not mapped as array"),
    SIM_ERROR(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "resource not mapped as pointer"),
    SIM_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    SIM_ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    SIM_ERROR(CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
              "exclusive-thread device already in use by a different thread"),
    SIM_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
              "peer access is not supported between these two devices"),
    SIM_ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    SIM_ERROR(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid OpenGL or DirectX context"),
    SIM_ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE,
              "uncorrectable NVLink error detected during the execution"),
    SIM_ERROR(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found"),
    SIM_ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
              "the provided PTX was compiled with an unsupported toolchain."),
    SIM_ERROR(CUDA_ERROR_JIT_COMPILATION_DISABLED, "PTX JIT compilation was disabled"),
    SIM_ERROR(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
              "the provided execution affinity is not supported"),
    SIM_ERROR(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
              "the provided PTX contains unsupported call to cudaDeviceSynchronize"),
    SIM_ERROR(CUDA_ERROR_CONTAINED,
              "Invalid access of peer GPU memory over nvlink or a hardware error"),
    SIM_ERROR(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    SIM_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    SIM_ERROR(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    SIM_ERROR(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed"),
    SIM_ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    SIM_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    SIM_ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    SIM_ERROR(CUDA_ERROR_LOSSY_QUERY, "attempted introspection would be semantically lossy"),
    SIM_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    SIM_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    SIM_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    SIM_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    SIM_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    SIM_ERROR(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch uses incompatible texturing mode"),
    SIM_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    SIM_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    SIM_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
              "cannot set while device is active in this process"),
    SIM_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    SIM_ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    SIM_ERROR(CUDA_ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted"),
    SIM_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
              "part or all of the requested memory range is already mapped"),
    SIM_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
              "pointer does not correspond to a registered memory region"),
    SIM_ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    SIM_ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    SIM_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    SIM_ERROR(CUDA_ERROR_INVALID_ADDRESS_SPACE,
              "operation not supported on global/shared address space"),
    SIM_ERROR(CUDA_ERROR_INVALID_PC, "invalid program counter"),
    SIM_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    SIM_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    SIM_ERROR(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory not completely freed"),
    SIM_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    SIM_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    SIM_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    SIM_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
              "system has unsupported display driver / cuda driver combination"),
    SIM_ERROR(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
              "forward compatibility was attempted on non supported HW"),
    SIM_ERROR(CUDA_ERROR_MPS_CONNECTION_FAILED,
              "MPS client failed to connect to the MPS control daemon or the MPS server"),
    SIM_ERROR(CUDA_ERROR_MPS_RPC_FAILURE,
              "the remote procedural call between the MPS server and the MPS client failed"),
    SIM_ERROR(CUDA_ERROR_MPS_SERVER_NOT_READY,
              "MPS server is not ready to accept new MPS client requests"),
    SIM_ERROR(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
              "the hardware resources required to create MPS client have been exhausted"),
    SIM_ERROR(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
              "the hardware resources required to support device connections have been exhausted"),
    SIM_ERROR(CUDA_ERROR_MPS_CLIENT_TERMINATED, "the MPS client has been terminated by the server"),
    SIM_ERROR(CUDA_ERROR_CDP_NOT_SUPPORTED,
              "is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does "
              "not support it"),
    SIM_ERROR(CUDA_ERROR_CDP_VERSION_MISMATCH,
              "unsupported interaction between different versions of CUDA Dynamic Parallelism"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
              "operation not permitted when stream is capturing"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
              "operation failed due to a previous error during capture"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
              "operation would result in a merge of separate capture sequences"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
              "capture was not ended in the same stream as it began"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
              "dependency created on uncaptured work in another stream"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
              "operation would make the legacy stream depend on a capturing blocking stream"),
    SIM_ERROR(CUDA_ERROR_CAPTURED_EVENT,
              "operation not permitted on an event last recorded in a capturing stream"),
    SIM_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
              "attempt to terminate a thread-local capture sequence from another thread"),
    SIM_ERROR(CUDA_ERROR_TIMEOUT, "wait operation timed out"),
    SIM_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
              "the graph update was not performed because it included changes which violated "
              "constraints specific to "
              "instantiated graph update"),
    SIM_ERROR(CUDA_ERROR_EXTERNAL_DEVICE,
              "an async error has occured in external entity outside of CUDA"),
    SIM_ERROR(CUDA_ERROR_INVALID_CLUSTER_SIZE,
              "a kernel launch error has occurred due to cluster misconfiguration"),
    SIM_ERROR(
        CUDA_ERROR_FUNCTION_NOT_LOADED,
        "the function handle is not loaded when calling an API that requires a loaded function"),
    SIM_ERROR(CUDA_ERROR_INVALID_RESOURCE_TYPE,
              "one or more resources passed in are not valid resource types for the operation"),
    SIM_ERROR(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
              "one or more resources are insufficient or non-applicable for the operation"),
    SIM_ERROR(CUDA_ERROR_KEY_ROTATION, "an error happened during the key rotation sequence"),
    SIM_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

const Error* find(CUresult code) {
  for (const Error& e : kErrors)
    if (e.code == code) return &e;
  return nullptr;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Error* e = find(error);
  *pStr = e == nullptr ? nullptr : e->text;
  return e == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Error* e = find(error);
  *pStr = e == nullptr ? nullptr : e->name;
  return e == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

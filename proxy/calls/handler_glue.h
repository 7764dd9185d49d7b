// What generated handlers say in one line: keep and adopt objects, read text, and the checks of
// values that could hurt. Session thread only.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/session/session.h"

namespace tube::proxy {

inline std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// data() that is not null when empty: an array of no elements is no question for their number.
template <class T>
T* non_null(std::vector<T>& values) {
  static T none{};
  return values.empty() ? &none : values.data();
}

inline uint64_t owner_of(Session& session, wire::Kind kind, uint64_t untrusted_id) {
  const Object* object = session.objects().find(kind, untrusted_id);
  return object != nullptr ? object->owner : 0;
}

// A new object under the id that the client chose.
template <class T>
CUresult keep(Session& session, wire::Kind kind, uint64_t untrusted_id, T handle) {
  return session.objects().insert(kind, untrusted_id, handle, session.record().context);
}

// The id of an object that the driver named; it ends with `owner` (0: by itself). A null handle has
// id 0.
template <class T>
CUresult adopt(Session& session, wire::Kind kind, T handle, uint64_t owner, uint64_t* id) {
  *id = 0;
  if (handle == T{}) return CUDA_SUCCESS;
  *id = session.objects().adopt(kind, handle, session.record().context, owner);
  return *id != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Every address that the operations wait for or write belongs to the client.
template <class Fixed>
CUresult check_mem_ops(Session& session, const Fixed&,
                       const std::vector<CUstreamBatchMemOpParams>& ops) {
  for (const CUstreamBatchMemOpParams& op : ops) {
    switch (op.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        if (CUresult r = session.check_device_range(op.waitValue.address, 4)) return r;
        session.remember_wait({op.waitValue.address, op.waitValue.value, op.waitValue.flags, 4});
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        if (CUresult r = session.check_device_range(op.waitValue.address, 8)) return r;
        session.remember_wait({op.waitValue.address, op.waitValue.value64, op.waitValue.flags, 8});
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        if (CUresult r = session.check_target_range(op.writeValue.address, 4)) return r;
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        if (CUresult r = session.check_target_range(op.writeValue.address, 8)) return r;
        break;
      case CU_STREAM_MEM_OP_BARRIER:
      case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

// Node attributes whose value holds no handle.
template <class Fixed>
CUresult check_node_attribute(Session&, const Fixed& call, const CUkernelNodeAttrValue&) {
  switch (static_cast<int>(call.attr)) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace tube::proxy

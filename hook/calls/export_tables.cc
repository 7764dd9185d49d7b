// NVIDIA's private export tables, as measured (docs/facts.md).
//
//   real, untouched      D4082055 validity check; F8CFF951, A094798C, 42D85A81, 69A28E9F and
//                        DA9151D3, which need no context
//   real, one slot ours  6BD5FB6C CUDART interface: its own address must stay; slot 2 (primary
//                        context handle of a device) is replaced in place, because the handles that
//                        programs hold are ours
//   copies               21318C60 slot 4: id of a context, slots 51 and 39: a stream and its id;
//                        1734DC26 slots 4 and 13: which TPC belongs to which GPC, asked of the
//                        proxy, because the driver in this process has no context
//   ours                 C693336E values by context and key (read thousands of times, so local and
//                        fast); 263E8860 context checks; 6E163FBE slot 7, which shows a callback
//                        the functions of a module: cuFFT finds its kernels that way
//   refused              everything else, said once: an unknown table may act on a context that the
//                        driver in this process does not have
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "hook/objects/support.h"
#include "hook/process/profilers.h"
#include "hook/process/real_driver.h"
#include "hook/process/start_trace.h"
#include "hook/store/store.h"
#include "protocol/hook_decls.gen.h"
#include "protocol/store_table.h"

namespace tube::hook {
namespace {

// cudart hands this number to the program as its own error: "unsupported display driver / cuda
// driver combination".
constexpr CUresult kNoRealDriver = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
constexpr size_t kMaxSlots = 128;

uint32_t short_name(const CUuuid* id) {
  const auto* b = reinterpret_cast<const uint8_t*>(id->bytes);
  return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
}

Context* context_or_current(CUcontext handle) {
  return handle == nullptr ? current_context() : find_context(handle);
}

// ---- C693336E: context-local storage ----
struct StorageKey {
  const Context* context;
  uint64_t epoch;  // a reset context has none of its old values
  void* key;
  bool operator==(const StorageKey&) const = default;
};
struct StorageHash {
  size_t operator()(const StorageKey& k) const {
    return (reinterpret_cast<size_t>(k.context) * 31 + reinterpret_cast<size_t>(k.key)) *
               0x9e3779b97f4a7c15ull +
           k.epoch;
  }
};
struct Storage {
  Lock lock;  // rank 2
  std::unordered_map<StorageKey, void*, StorageHash> values;
};
Storage& storage() {
  static Storage* s = new Storage;
  return *s;
}

bool key_of(CUcontext handle, void* key, StorageKey* out) {
  const Context* context = context_or_current(handle);
  if (context == nullptr) return false;
  *out = StorageKey{context, context->epoch.load(std::memory_order_relaxed), key};
  return true;
}

// The destructor is not kept: libraries free their values themselves, and a reset must not call
// into unloaded ones.
CUresult storage_put(CUcontext handle, void* key, void* value, void (*)(CUcontext, void*, void*)) {
  StorageKey k;
  if (!key_of(handle, key, &k)) return CUDA_ERROR_INVALID_CONTEXT;
  Locked locked(storage().lock);
  storage().values[k] = value;
  return CUDA_SUCCESS;
}

CUresult storage_delete(CUcontext handle, void* key) {
  StorageKey k;
  if (!key_of(handle, key, &k)) return CUDA_ERROR_INVALID_CONTEXT;
  Locked locked(storage().lock);
  return storage().values.erase(k) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult storage_get(void** value, CUcontext handle, void* key) {
  StorageKey k;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!key_of(handle, key, &k)) return CUDA_ERROR_INVALID_CONTEXT;
  Locked locked(storage().lock);
  const auto found = storage().values.find(k);
  if (found == storage().values.end()) return CUDA_ERROR_INVALID_HANDLE;
  *value = found->second;
  return CUDA_SUCCESS;
}

CUresult refused() { return CUDA_ERROR_NOT_SUPPORTED; }

// ---- 263E8860: context checks ----
CUresult context_check(CUcontext, uint32_t* first, void** second) {
  if (first != nullptr) *first = 0;
  if (second != nullptr) *second = nullptr;
  return CUDA_SUCCESS;
}
uint32_t context_check_none() { return 0; }

// ---- 6E163FBE: a module's functions ----

// Observed
// on an H200 (driver 580.159): cuFFT passes context, module, a callback and its data; the driver
// calls it with the data and each function of the module, whatever it returns, and answers their
// number. No other slot is ever called.
constexpr size_t kFunctionTableSlots = 99;

int visit_functions(CUcontext, CUmodule module, void (*visit)(void*, CUfunction), void* data) {
  unsigned count = 0;
  if (visit == nullptr || hook::cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS ||
      count == 0)
    return 0;
  std::vector<CUfunction> functions(count);
  if (hook::cuModuleEnumerateFunctions(functions.data(), count, module) != CUDA_SUCCESS) return 0;
  for (CUfunction function : functions) visit(data, function);
  return static_cast<int>(count);
}

// ---- slots that replace the driver's ----
CUresult primary_context(CUcontext* out, CUdevice device) {
  const Process& p = process();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || static_cast<uint32_t>(device) >= p.device_count)
    return CUDA_ERROR_INVALID_DEVICE;
  *out = p.primaries[device]->handle();
  return CUDA_SUCCESS;
}

CUresult context_id(CUcontext handle, uint64_t* out) {
  const Context* context = context_or_current(handle);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *out = context->unique;
  return CUDA_SUCCESS;
}

// Observed on an H200 (driver 580.159): cuBLAS asks slot 51 (context, stream, out, 1 for a
// per-thread default stream) for what stands behind a stream handle, passes it to slot 39 (context,
// that, out) and gets the stream's id.
CUresult stream_object(CUcontext handle, CUstream stream, void** out, uint32_t per_thread_default) {
  Context* context = context_or_current(handle);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult error = CUDA_SUCCESS;
  *out = find_stream_in(
      context, stream == nullptr && per_thread_default != 0 ? CU_STREAM_PER_THREAD : stream,
      &error);
  return error;
}

CUresult stream_object_id(CUcontext, const Stream* stream, uint64_t* out) {
  if (stream == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = stream->unique;
  return CUDA_SUCCESS;
}

uint64_t g_gpc_table_id[2];  // as the library asked for it; written before the table is handed out

CUresult gpc_tables(void** first, void** second) {
  if (first == nullptr || second == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  wire::tubeGpcTable_reply reply{};
  ReplyBlobs blobs;
  CUresult result;
  {
    Request<wire::tubeGpcTable> r;
    std::memcpy(r->table, g_gpc_table_id, sizeof g_gpc_table_id);
    result = r.call(&reply, &blobs);
  }
  if (result != CUDA_SUCCESS) return result;
  const auto a = blobs.get(reply.first), b = blobs.get(reply.second);
  // The caller measures them with malloc_usable_size: allocate exactly what the driver had.
  void* one = std::malloc(a.empty() ? 1 : a.size());
  void* two = std::malloc(b.empty() ? 1 : b.size());
  if (one == nullptr || two == nullptr) {
    std::free(one);
    std::free(two);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!a.empty()) std::memcpy(one, a.data(), a.size());
  if (!b.empty()) std::memcpy(two, b.data(), b.size());
  *first = one;
  *second = two;
  return CUDA_SUCCESS;
}

CUresult free_gpc_tables(void* first, void* second) {
  std::free(first);
  std::free(second);
  return CUDA_SUCCESS;
}

// ---- Tube's own, for libtube.so (protocol/store_table.h) ----
constexpr uint32_t kStoreTableName = uint32_t{kStoreTableId[0]} << 24 | kStoreTableId[1] << 16 |
                                     kStoreTableId[2] << 8 | kStoreTableId[3];

// ---- tables ----
template <class F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

struct Tables {
  Lock lock;  // rank 0: made once
  void* storage_table[4];
  void* check_table[4];
  void* function_table[kFunctionTableSlots] = {};
  void* copy_21318C60[kMaxSlots] = {};
  void* copy_1734DC26[kMaxSlots] = {};
  bool cudart_patched = false;
  bool devices_checked = false;
};
Tables& tables() {
  static Tables* t =
      new Tables{{},
                 {slot(storage_put), slot(storage_delete), slot(storage_get), slot(refused)},
                 {reinterpret_cast<void*>(4 * sizeof(void*)), slot(refused), slot(context_check),
                  slot(context_check_none)}};
  return *t;
}

CUresult no_real_driver(const Error& error) {
  static Once said;
  if (said.first())
    log_error(
        "this program uses the CUDA runtime, which needs the real driver's validity check: %s",
        error.message.c_str());
  return kNoRealDriver;
}

// The check covers the devices: what the driver sees in this process must be what we report.
CUresult check_devices(const RealDriver& d) {
  const Process& p = process();
  int count = 0;
  bool same =
      d.device_get_count(&count) == CUDA_SUCCESS && static_cast<uint32_t>(count) == p.device_count;
  for (int i = 0; same && i < count; ++i) {
    CUuuid uuid;
    same = d.device_get_uuid(&uuid, i) == CUDA_SUCCESS &&
           std::memcmp(uuid.bytes, p.connection->device_infos[p.devices[i]].uuid,
                       sizeof uuid.bytes) == 0;
  }
  if (same) return CUDA_SUCCESS;
  log_error(
      "the driver in this process sees %d GPU(s), the proxy offers %u others (%s); set "
      "CUDA_VISIBLE_DEVICES to those",
      count, p.device_count, visible_uuids().c_str());
  return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

CUresult real_table(const CUuuid* id, bool started, const void** table) {
  mark_start(StartMark::kTable);
  Result<const RealDriver*> driver =
      started ? start_real_driver(visible_uuids()) : load_real_driver();
  if (!driver) return no_real_driver(driver.error());
  if (started) mark_start(StartMark::kTableReady);
  Tables& t = tables();
  if (started && !t.devices_checked) {
    if (const CUresult r = check_devices(**driver); r != CUDA_SUCCESS) return r;
    t.devices_checked = true;
  }
  const CUresult result = (*driver)->get_export_table(table, id);
  return result == CUDA_SUCCESS && *table == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}

// The table's page is read-only data of the driver: writable for the one store. It stays at its
// address.
bool replace_in_place(const void* table, size_t index, void* function) {
  auto* where = static_cast<void**>(const_cast<void*>(table)) + index;
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t page = reinterpret_cast<uintptr_t>(where) & ~(page_bytes - 1);
  if (mprotect(reinterpret_cast<void*>(page), page_bytes, PROT_READ | PROT_WRITE) != 0)
    return false;
  __atomic_store_n(where, function, __ATOMIC_RELEASE);
  return true;  // left writable: other data on the page may have been so
}

CUresult copied(const CUuuid* id, void** copy, const void** table) {
  const void* real = nullptr;
  if (const CUresult r = real_table(id, true, &real); r != CUDA_SUCCESS) return r;
  size_t bytes;
  std::memcpy(&bytes, real, sizeof bytes);  // slot 0 is the table's size
  if (bytes < 14 * sizeof(void*) && copy == tables().copy_1734DC26) return CUDA_ERROR_NOT_FOUND;
  if (bytes < 5 * sizeof(void*) || bytes > kMaxSlots * sizeof(void*)) return CUDA_ERROR_NOT_FOUND;
  std::memcpy(copy, real, bytes);
  *table = copy;
  return CUDA_SUCCESS;
}

CUresult refuse(const CUuuid* id) {
  char name[64];
  std::snprintf(name, sizeof name, "export table %08X", short_name(id));
  static Once said;
  if (said.first()) log_info("%s is not offered", name);
  if (is_profilers_table(short_name(id))) say_not_recorded();
  return CUDA_ERROR_INVALID_VALUE;  // what the driver says of a table it does not have
}

// The tables that are wholly ours and need no driver; null for every other name.
const void* own_table(Tables& t, uint32_t name) {
  switch (name) {
    case kStoreTableName: return store_table();
    case 0xC693336E: return t.storage_table;
    case 0x263E8860: return t.check_table;
    case 0x6E163FBE:
      for (void*& entry : t.function_table) entry = slot(refused);
      t.function_table[0] = reinterpret_cast<void*>(sizeof t.function_table);
      t.function_table[7] = slot(visit_functions);
      return t.function_table;
    default: return nullptr;
  }
}

// The driver's table with our answers about the identity of contexts and streams; under the tables'
// lock.
CUresult identity_table(const CUuuid* id, const void** table) {
  Tables& t = tables();
  if (t.copy_21318C60[0] == nullptr) {
    if (const CUresult r = copied(id, t.copy_21318C60, table); r != CUDA_SUCCESS) return r;
    t.copy_21318C60[4] = slot(context_id);
    size_t bytes;
    std::memcpy(&bytes, t.copy_21318C60, sizeof bytes);
    if (bytes > 51 * sizeof(void*)) {
      t.copy_21318C60[39] = slot(stream_object_id);
      t.copy_21318C60[51] = slot(stream_object);
    }
  }
  *table = t.copy_21318C60;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t name = short_name(pExportTableId);
  Tables& t = tables();
  Locked locked(t.lock);
  if (const void* own = own_table(t, name); own != nullptr) {
    *ppExportTable = own;
    return CUDA_SUCCESS;
  }
  const bool ready = process().state() == State::kReady;
  switch (name) {
    case 0xF8CFF951:  // asked before cuInit, no slot is ever called
    case 0xDA9151D3:
    case 0x69A28E9F: return real_table(pExportTableId, ready, ppExportTable);
    case 0xD4082055:
    case 0xA094798C:
    case 0x42D85A81:
      if (!ready) return guard(Needs::kInit);
      return real_table(pExportTableId, true, ppExportTable);
    case 0x6BD5FB6C: {
      if (!ready) return guard(Needs::kInit);
      const void* table = nullptr;
      if (const CUresult r = real_table(pExportTableId, true, &table); r != CUDA_SUCCESS) return r;
      if (!t.cudart_patched && !replace_in_place(table, 2, slot(primary_context))) {
        log_error("the CUDART interface table cannot be changed (mprotect: %s)",
                  std::strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
      }
      t.cudart_patched = true;
      *ppExportTable = table;
      return CUDA_SUCCESS;
    }
    case 0x21318C60:
      return ready ? identity_table(pExportTableId, ppExportTable) : guard(Needs::kInit);
    case 0x1734DC26: {
      if (!ready) return guard(Needs::kInit);
      if (t.copy_1734DC26[0] == nullptr) {
        if (const CUresult r = copied(pExportTableId, t.copy_1734DC26, ppExportTable);
            r != CUDA_SUCCESS)
          return r;
        std::memcpy(g_gpc_table_id, pExportTableId->bytes, sizeof g_gpc_table_id);
        t.copy_1734DC26[4] = slot(gpc_tables);
        t.copy_1734DC26[13] = slot(free_gpc_tables);
      }
      *ppExportTable = t.copy_1734DC26;
      return CUDA_SUCCESS;
    }
    default: return refuse(pExportTableId);
  }
}

}  // namespace tube::hook

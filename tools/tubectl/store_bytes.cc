#include "tools/tubectl/store_bytes.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "protocol/store_table.h"

namespace tube::ctl {
namespace {

constexpr uint32_t kHostPlace = 0;  // wire::StorePlace
constexpr int kNotFound = 2;        // wire::StoreAnswer

Result<const StoreTable*> join(const std::string& hook_lib, const std::string& workflow) {
  setenv("TUBE_WORKFLOW", workflow.c_str(), 1);
  setenv("TUBE_FUNCTION", "tubectl", 1);
  void* library = dlopen(hook_lib.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return errorf("cannot load %s: %s", hook_lib.c_str(), dlerror());
  // CUDA's types, as they are in a program that does not have its headers.
  auto* table_of = reinterpret_cast<int (*)(const void**, const unsigned char*)>(
      dlsym(library, "cuGetExportTable"));
  const void* table = nullptr;
  if (table_of == nullptr || table_of(&table, kStoreTableId) != 0 || table == nullptr)
    return errorf("%s is not Tube's", hook_lib.c_str());
  const auto* store = static_cast<const StoreTable*>(table);
  if (store->version != kStoreTableVersion) return errorf("%s is too old", hook_lib.c_str());
  return store;
}

}  // namespace

Status write_object(const std::string& hook_lib, const std::string& workflow,
                    const std::string& name, int fd) {
  Result<const StoreTable*> store = join(hook_lib, workflow);
  if (!store.ok()) return store.error();
  StoreObject object;
  const int answer = (*store)->get(name.c_str(), kHostPlace, -1, nullptr, 0, &object);
  if (answer == kNotFound) return errorf("no sealed object is called '%s'", name.c_str());
  if (answer > kStoreCuda) return errorf("CUDA error %d", answer - kStoreCuda);
  if (answer != 0) return errorf("'%s' cannot be had in host memory", name.c_str());
  Status written;
  for (uint64_t done = 0; done < object.bytes && written.ok();) {
    const ssize_t got =
        write(fd, reinterpret_cast<const char*>(object.address) + done, object.bytes - done);
    if (got > 0) done += static_cast<uint64_t>(got);
    else if (got == 0 || errno != EINTR) written = errno_error(errno, "cannot write");
  }
  return written;  // not released, so that nobody counts it as a consumer: the process ends
}

}  // namespace tube::ctl

#include "proxy/copy/machine_links.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"

namespace tube::proxy {
namespace {

namespace ipc = boost::interprocess;

constexpr uint64_t kLayout = 0x0003'6b6e'696c'6275;  // "ublnk" and a number that grows
constexpr size_t kNameBytes = 64;
using Word = std::atomic<uint64_t>;
static_assert(Word::is_always_lock_free);

// Whole bytes as atomic words: a reader beside a writer sees old and new words, never a tear.
void store_bytes(Word* words, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(from) + at, std::min(sizeof(word), bytes - at));
    words[at / sizeof(word)].store(word, std::memory_order_relaxed);
  }
}

void load_bytes(const Word* words, void* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = words[at / sizeof(word)].load(std::memory_order_relaxed);
    std::memcpy(static_cast<char*>(to) + at, &word, std::min(sizeof(word), bytes - at));
  }
}

struct flock byte_lock(short type, uint32_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

bool take_lock(int fd, uint32_t byte, bool wait) {
  struct flock lock = byte_lock(F_WRLCK, byte);
  int done = 0;
  while ((done = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock)) != 0 && errno == EINTR) {
  }
  return done == 0;
}

}  // namespace

struct MachineLinks::Slot {
  Word pid;  // 0: nothing of this slot is valid
  Word workflow[kNameBytes / sizeof(uint64_t)];
  Word gpus;
  Word weight;
  struct Gpu {
    Word uuid[2];
    LinkCell up, down;
    TimeCell time;
  } gpu[kGpus];
};

struct MachineLinks::File {
  Word layout;
  uint64_t reserved[7];
  Slot slots[kSlots];
};

struct MachineLinks::Mapped {
  UniqueFd fd;  // holds the lock of our slot
  ipc::mapped_region region;
  File& file() const { return *static_cast<File*>(region.get_address()); }
};

namespace {

// Byte 0 of the file is locked while its size and layout are made or looked at, byte 1 + N by who
// has slot N.
constexpr uint32_t slot_byte(uint32_t slot) { return 1 + slot; }

}  // namespace

Result<std::unique_ptr<MachineLinks>> MachineLinks::open(const std::string& path,
                                                         const std::string& workflow,
                                                         const std::vector<CUuuid>& gpus,
                                                         uint32_t weight) {
  auto mapped = std::make_unique<Mapped>();
  mapped->fd = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  const int fd = mapped->fd.get();
  if (fd < 0) return errno_error(errno, path);
  if (!take_lock(fd, 0, true)) return errno_error(errno, path + ": its lock");
  if (const int error = posix_fallocate(fd, 0, sizeof(File)); error != 0)
    return errno_error(error, path);
  try {
    const ipc::file_mapping file(path.c_str(), ipc::read_write);
    mapped->region = ipc::mapped_region(file, ipc::read_write, 0, sizeof(File));
  } catch (const ipc::interprocess_exception& error) {
    return errorf("%s: %s", path.c_str(), error.what());
  }
  File& file = mapped->file();
  uint64_t layout = 0;
  file.layout.compare_exchange_strong(layout, kLayout);
  struct flock unlock = byte_lock(F_UNLCK, 0);
  (void)fcntl(fd, F_OFD_SETLK, &unlock);
  if (layout != 0 && layout != kLayout)
    return errorf("%s was made by another version of Tube", path.c_str());
  uint32_t index = 0;
  while (index < kSlots && !take_lock(fd, slot_byte(index), false)) ++index;
  if (index == kSlots) return errorf("%s has no room for another proxy", path.c_str());
  Slot& slot = file.slots[index];
  slot.pid.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  const uint32_t count = std::min<uint32_t>(static_cast<uint32_t>(gpus.size()), kGpus);
  store_bytes(slot.workflow, workflow.c_str(), std::min(workflow.size() + 1, kNameBytes - 1));
  slot.workflow[kNameBytes / sizeof(uint64_t) - 1].store(0, std::memory_order_relaxed);
  slot.gpus.store(count, std::memory_order_relaxed);
  slot.weight.store(weight, std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    store_bytes(slot.gpu[i].uuid, &gpus[i], sizeof(CUuuid));
    slot.gpu[i].time.running.store(0, std::memory_order_relaxed);
    slot.gpu[i].time.wants_ns.store(0, std::memory_order_relaxed);
    for (LinkCell* cell : {&slot.gpu[i].up, &slot.gpu[i].down}) {
      cell->bytes.store(0, std::memory_order_relaxed);
      cell->needed_bytes_per_s.store(0, std::memory_order_relaxed);
    }
  }
  slot.pid.store(static_cast<uint64_t>(::getpid()), std::memory_order_release);
  return std::unique_ptr<MachineLinks>(new MachineLinks(std::move(mapped), index));
}

std::string MachineLinks::workflow_of(const Slot& slot) {
  char name[kNameBytes];
  load_bytes(slot.workflow, name, sizeof(name));
  name[kNameBytes - 1] = '\0';
  return name;
}

MachineLinks::MachineLinks(std::unique_ptr<Mapped> mapped, uint32_t slot)
    : mapped_(std::move(mapped)), slot_(slot) {}

MachineLinks::~MachineLinks() {
  mapped_->file().slots[slot_].pid.store(0, std::memory_order_release);
}

const MachineLinks::Slot& MachineLinks::slot(uint32_t index) const {
  return mapped_->file().slots[index];
}

LinkCell& MachineLinks::mine(uint32_t gpu, bool to_gpu) {
  Slot::Gpu& link = mapped_->file().slots[slot_].gpu[gpu];
  return to_gpu ? link.up : link.down;
}

TimeCell& MachineLinks::my_time(uint32_t gpu) { return mapped_->file().slots[slot_].gpu[gpu].time; }

// Whether another proxy has the slot.
bool MachineLinks::lives(uint32_t index) const {
  if (index == slot_ || slot(index).pid.load(std::memory_order_acquire) == 0) return false;
  struct flock lock = byte_lock(F_WRLCK, slot_byte(index));
  return fcntl(mapped_->fd.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::vector<MachineLinks::OtherTime> MachineLinks::others_time(const CUuuid& gpu) const {
  std::vector<OtherTime> found;
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (!lives(i)) continue;
    const Slot& slot = this->slot(i);
    const uint64_t gpus = std::min<uint64_t>(slot.gpus.load(std::memory_order_relaxed), kGpus);
    for (uint64_t at = 0; at < gpus; ++at) {
      CUuuid uuid{};
      load_bytes(slot.gpu[at].uuid, &uuid, sizeof(uuid));
      if (std::memcmp(&uuid, &gpu, sizeof(uuid)) != 0) continue;
      const TimeCell& cell = slot.gpu[at].time;
      found.push_back({i, static_cast<int32_t>(slot.pid.load(std::memory_order_relaxed)),
                       workflow_of(slot),
                       static_cast<uint32_t>(slot.weight.load(std::memory_order_relaxed)),
                       cell.running.load(std::memory_order_relaxed),
                       cell.wants_ns.load(std::memory_order_relaxed)});
    }
  }
  return found;
}

std::vector<MachineLinks::Other> MachineLinks::others() const {
  std::vector<Other> found;
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (!lives(i)) continue;  // it died
    const Slot& slot = this->slot(i);
    const uint64_t pid = slot.pid.load(std::memory_order_acquire);
    const std::string name = workflow_of(slot);
    const uint64_t gpus = std::min<uint64_t>(slot.gpus.load(std::memory_order_relaxed), kGpus);
    for (uint64_t gpu = 0; gpu < gpus; ++gpu) {
      for (const bool up : {true, false}) {
        const LinkCell& cell = up ? slot.gpu[gpu].up : slot.gpu[gpu].down;
        Other other{.slot = i, .pid = static_cast<int32_t>(pid), .workflow = name, .to_gpu = up};
        load_bytes(slot.gpu[gpu].uuid, &other.gpu, sizeof(other.gpu));
        other.bytes = cell.bytes.load(std::memory_order_relaxed);
        other.needed_bytes_per_s = cell.needed_bytes_per_s.load(std::memory_order_relaxed);
        found.push_back(other);
      }
    }
  }
  return found;
}

}  // namespace tube::proxy

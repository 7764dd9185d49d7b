#include "sharedmem/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "sharedmem/accessors.h"
#include "sharedmem/file_size_limit.h"

namespace tube::shared {
namespace {

Error memory_file_error(int error_number, const char* name, uint64_t size_bytes) {
  const std::string what = std::string("cannot make the shared memory file '") + name + "' of " +
                           std::to_string(size_bytes) + " bytes";
  switch (error_number) {
    case ENOSPC:
      return Error{ENOSPC,
                   what + ": shared memory is used up (/dev/shm or the container's shm size)"};
    case ENOMEM:
      return Error{ENOMEM, what + ": the machine or the container (memory limit) is out of memory"};
    case EMFILE:
      return Error{EMFILE, what + ": this process has no file descriptor left (ulimit -n)"};
    case ENFILE:
      return Error{ENFILE, what + ": the system has no file descriptor left (fs.file-max)"};
    case EFBIG: return Error{EFBIG, what + ": larger than the file size limit (ulimit -f)"};
    default: return errno_error(error_number, what);
  }
}

// Takes the pages. 0 or errno; some sandboxes know no fallocate on memory files: then memory comes
// when touched.
int allocate(int fd, uint64_t offset, uint64_t size_bytes) {
  int error;
  do {
    error = ::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(size_bytes)) == 0
                ? 0
                : errno;
  } while (error == EINTR);
  return error == EOPNOTSUPP || error == ENOSYS ? 0 : error;
}

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Result<UniqueFd> open_memory_file(const char* name, uint64_t size_bytes, Fill fill) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return memory_file_error(errno, name, size_bytes);
  const FileSizeLimit limit(size_bytes);
  if (!limit.lifted()) return memory_file_error(EFBIG, name, size_bytes);
  if (::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0)
    return memory_file_error(errno, name, size_bytes);
  if (fill == Fill::kAllocated) {
    if (const int error = allocate(fd.get(), 0, size_bytes); error != 0)
      return memory_file_error(error, name, size_bytes);
  }
  return fd;
}

}  // namespace

Result<UniqueFd> create_memory_file(const char* name, uint64_t size_bytes, Fill fill) {
  Result<UniqueFd> fd = open_memory_file(name, size_bytes, fill);
  if (!fd) return fd;
  if (::fcntl(fd->get(), F_ADD_SEALS, kSizeSeals) != 0)
    return errno_error(errno, std::string("cannot seal memory file ") + name);
  return fd;
}

Result<UniqueFd> create_index_file(const char* name, uint64_t size_bytes) {
  Result<UniqueFd> fd = open_memory_file(name, size_bytes, Fill::kAllocated);
  if (fd && ::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return errno_error(errno, std::string("cannot seal memory file ") + name);
  return fd;
}

Result<UniqueFd> create_constant_file(const char* name, const void* data, uint64_t size_bytes) {
  Result<UniqueFd> fd = open_memory_file(name, size_bytes, Fill::kAllocated);
  if (!fd) return fd;
  const FileSizeLimit limit(size_bytes);
  uint64_t done = 0;
  while (done < size_bytes) {
    const ssize_t n = ::pwrite(fd->get(), static_cast<const char*>(data) + done, size_bytes - done,
                               static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return memory_file_error(n < 0 ? errno : EIO, name, size_bytes);
    done += static_cast<uint64_t>(n);
  }
  if (::fcntl(fd->get(), F_ADD_SEALS, kSizeSeals | F_SEAL_WRITE) != 0) {
    return errno_error(errno, std::string("cannot seal memory file ") + name);
  }
  return fd;
}

Status verify_memory_file(int fd, uint64_t size_bytes, bool constant) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return Error{EINVAL, "the proxy sent something that is not a memory file"};
  const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | (constant ? F_SEAL_WRITE : 0);
  if ((seals & wanted) != wanted)
    return Error{EPERM,
                 "the proxy sent a memory file that is not sealed: it could shrink under us"};
  struct stat info;
  if (::fstat(fd, &info) != 0) return errno_error(errno, "cannot look at the proxy's memory file");
  if (static_cast<uint64_t>(info.st_size) != size_bytes) {
    return Error{EINVAL, "the proxy's memory file has " + std::to_string(info.st_size) +
                             " bytes instead of " + std::to_string(size_bytes)};
  }
  return {};
}

Result<Segment> Segment::create(uint64_t session_id) {
  constexpr const char* kName = "tube-segment";
  Result<UniqueFd> fd = create_memory_file(kName, abi::kSegmentBytes, Fill::kSparse);
  if (!fd) return fd.error();
  if (const int error = allocate(fd->get(), 0, abi::kFirstBytes); error != 0)
    return memory_file_error(error, kName, abi::kFirstBytes);
  Segment segment;
  segment.fd_ = fd.take();
  Result<Mapping> memory =
      Mapping::map(segment.fd(), 0, abi::kSegmentBytes, PROT_READ | PROT_WRITE);
  if (!memory) return memory.error();
  segment.memory_ = memory.take();
  Result<Mapping> ring = Mapping::map_ring(segment.fd(), abi::kRingOffset, abi::kRingBytes);
  if (!ring) return ring.error();
  segment.ring_ = ring.take();
  segment.begin(session_id);
  return segment;
}

void Segment::begin(uint64_t session_id) {
  abi::SegmentHeader& now = header();
  now.magic = abi::kSegmentMagic;
  now.abi_version = abi::kAbiVersion;
  now.segment_bytes = abi::kSegmentBytes;
  now.session_id = session_id;
  proxy_store_state(now, abi::ProxyState::kStarting);
}

void Segment::wipe(bool more_chunks) {
  std::memset(memory_.data(), 0, more_chunks ? abi::kSegmentBytes : abi::kFirstBytes);
}

Status Segment::allocate_more_chunks() {
  const int error = allocate(fd(), abi::kFirstBytes, abi::kMoreChunksBytes);
  return error == 0 ? Status()
                    : Status(memory_file_error(error, "tube-segment", abi::kMoreChunksBytes));
}

Result<Segment> Segment::attach(UniqueFd fd) {
  Status status = verify_memory_file(fd.get(), abi::kSegmentBytes, false);
  if (!status) return status.error();
  Segment segment;
  segment.fd_ = std::move(fd);
  Result<Mapping> memory =
      Mapping::map(segment.fd(), 0, abi::kSegmentBytes, PROT_READ | PROT_WRITE);
  if (!memory) return memory.error();
  segment.memory_ = memory.take();
  const abi::SegmentHeader& header = segment.header();
  if (header.magic != abi::kSegmentMagic || header.abi_version != abi::kAbiVersion ||
      header.segment_bytes != abi::kSegmentBytes) {
    return Error{EPROTO,
                 "the proxy's shared segment has another layout; function and proxy are of "
                 "different versions"};
  }
  Result<Mapping> ring = Mapping::map_ring(segment.fd(), abi::kRingOffset, abi::kRingBytes);
  if (!ring) return ring.error();
  segment.ring_ = ring.take();
  // A forked child has no use of it, and the proxy may use the memory again when this address space
  // is gone.
  if (::madvise(segment.memory_.data(), segment.memory_.size(), MADV_DONTFORK) != 0 ||
      ::madvise(segment.ring_.data(), segment.ring_.size(), MADV_DONTFORK) != 0) {
    return errno_error(errno, "cannot keep the shared segment from children");
  }
  segment.fd_.reset();  // the mappings hold the memory; a program's fd table is not ours to fill
  return segment;
}

abi::ReplyHeader& Segment::reply(uint32_t slot) const {
  return *reinterpret_cast<abi::ReplyHeader*>(memory_.data() + abi::kReplyOffset +
                                              uint64_t{slot} * abi::kReplySlotBytes);
}

std::byte* Segment::reply_payload(uint32_t slot) const {
  return reinterpret_cast<std::byte*>(&reply(slot)) + sizeof(abi::ReplyHeader);
}

uint64_t& Segment::word(uint32_t index) const {
  return *reinterpret_cast<uint64_t*>(memory_.data() + abi::kWordsOffset + uint64_t{index} * 8);
}

uint64_t& Segment::chunk_state(uint32_t index) const {
  return *reinterpret_cast<uint64_t*>(memory_.data() + abi::kChunkStatesOffset +
                                      uint64_t{index} * 8);
}

std::byte* Segment::chunk(uint32_t index) const {
  return memory_.data() + abi::kChunksOffset + abi::chunk_place(index);
}

}  // namespace tube::shared

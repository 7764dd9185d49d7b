// Memory files: sealed, allocated, verified; exhaustion is a worded error.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "sharedmem/accessors.h"
#include "tests/unit/sharedmem/support.h"

namespace tube::shared {
namespace {

TEST(MemoryFile, CanNeitherShrinkNorGrowNorLoseItsSeals) {
  Result<UniqueFd> fd = create_memory_file("x", 8192, Fill::kAllocated);
  ASSERT_TRUE(fd) << fd.error().message;
  EXPECT_EQ(::ftruncate(fd->get(), 4096), -1);
  EXPECT_EQ(::ftruncate(fd->get(), 16384), -1);
  EXPECT_EQ(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_TRUE(verify_memory_file(fd->get(), 8192, false));
  EXPECT_EQ(verify_memory_file(fd->get(), 8193, false).error().code, EINVAL);
  EXPECT_EQ(verify_memory_file(fd->get(), 8192, true).error().code, EPERM);
}

TEST(MemoryFile, ConstantFileCannotBeWrittenByAnyone) {
  Result<UniqueFd> fd = create_constant_file("info", "abc", 3);
  ASSERT_TRUE(fd);
  EXPECT_TRUE(verify_memory_file(fd->get(), 3, true));
  EXPECT_EQ(::pwrite(fd->get(), "x", 1, 0), -1);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
  Result<Mapping> mapping = Mapping::map(fd->get(), 0, 3, PROT_READ);
  ASSERT_TRUE(mapping);
  EXPECT_EQ(mapping->data()[2], std::byte{'c'});
}

TEST(MemoryFile, OrdinaryFilesAndUnsealedOnesAreNotTrusted) {
  UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(verify_memory_file(file.get(), 4096, false).error().code, EINVAL);
  UniqueFd open(::memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), 4096), 0);
  EXPECT_EQ(verify_memory_file(open.get(), 4096, false).error().code, EPERM);
  ASSERT_EQ(::fcntl(open.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_EQ(verify_memory_file(open.get(), 4096, false).error().code, EPERM);
}

TEST(MemoryFile, AllocatedMeansPresentAndSparseMeansNot) {
  struct stat info;
  Result<UniqueFd> full = create_memory_file("full", 1 << 20, Fill::kAllocated);
  ASSERT_TRUE(full);
  ASSERT_EQ(::fstat(full->get(), &info), 0);
  EXPECT_EQ(info.st_blocks * 512, 1 << 20);
  Result<UniqueFd> sparse = create_memory_file("sparse", 64ull << 30, Fill::kSparse);
  ASSERT_TRUE(sparse) << sparse.error().message;
  ASSERT_EQ(::fstat(sparse->get(), &info), 0);
  EXPECT_EQ(info.st_blocks, 0);
}

TEST(MemoryFile, LimitsAreErrorsInWordsAndNotSignals) {
  const pid_t large = in_child([] {
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Result<UniqueFd> fd = create_memory_file("x", 2 << 20, Fill::kAllocated);
    return !fd && fd.error().message.find("ulimit -f") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(exit_code(large), 0);
  // The soft limit is the program's word about files of its own.
  const pid_t raised = in_child([] {
    const rlimit limit{1 << 20, 4 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::vector<char> bytes(3 << 20, 'x');
    if (!create_memory_file("x", 2 << 20, Fill::kAllocated)) return 1;
    Result<UniqueFd> constant = create_constant_file("y", bytes.data(), bytes.size());
    char last = 0;
    if (!constant || ::pread(constant->get(), &last, 1, bytes.size() - 1) != 1 || last != 'x')
      return 2;
    rlimit after{};
    return ::getrlimit(RLIMIT_FSIZE, &after) == 0 && after.rlim_cur == 1 << 20 ? 0 : 3;
  });
  EXPECT_EQ(exit_code(raised), 0);
  const pid_t no_fd = in_child([] {
    const rlimit limit{3, 3};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    Result<Segment> segment = Segment::create(1);
    return !segment && segment.error().message.find("ulimit -n") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(exit_code(no_fd), 0);
}

TEST(SegmentTest, LeavesNoFdAndNoMappingBehind) {
  const int before = count_fds();
  {
    Result<Segment> made = Segment::create(5);
    ASSERT_TRUE(made) << made.error().message;
    Result<Segment> attached = Segment::attach(UniqueFd(::dup(made->fd())));
    ASSERT_TRUE(attached) << attached.error().message;
    EXPECT_EQ(attached->fd(), -1);
    EXPECT_EQ(count_fds(), before + 1);
    EXPECT_EQ(attached->header().session_id, 5u);
    EXPECT_EQ(client_load_proxy_state(attached->header()), abi::ProxyState::kStarting);
  }
  EXPECT_EQ(count_fds(), before);
}

TEST(SegmentTest, ItsPartsAreSharedAndDoNotOverlap) {
  Result<Segment> made = Segment::create(1);
  ASSERT_TRUE(made);
  Result<Segment> client = Segment::attach(UniqueFd(::dup(made->fd())));
  ASSERT_TRUE(client);
  client->word(abi::kWordCount - 1) = 1;
  client->chunk_state(0) = 2;
  client->chunk(abi::kChunkCount - 1)[abi::kLaterChunkBytes - 1] = std::byte{3};
  client->ring()[2 * abi::kRingBytes - 1] = std::byte{4};
  client->reply(abi::kReplySlots - 1).result = 5;
  EXPECT_EQ(made->word(abi::kWordCount - 1), 1u);
  EXPECT_EQ(made->chunk_state(0), 2u);
  EXPECT_EQ(made->chunk(abi::kChunkCount - 1)[abi::kLaterChunkBytes - 1], std::byte{3});
  EXPECT_EQ(made->ring()[abi::kRingBytes - 1], std::byte{4});
  EXPECT_EQ(made->reply(abi::kReplySlots - 1).result, 5u);
  EXPECT_EQ(made->word(0), 0u);
  EXPECT_EQ(made->registered() + chunk_state_offset(0),
            reinterpret_cast<std::byte*>(&made->chunk_state(0)));
  EXPECT_EQ(made->registered() + chunk_offset(3), made->chunk(3));
  for (uint32_t i = 1; i < abi::kChunkCount; ++i)
    EXPECT_EQ(made->chunk(i - 1) + abi::chunk_bytes(i - 1), made->chunk(i));
}

TEST(SegmentTest, AnotherLayoutIsRefused) {
  Result<UniqueFd> fd = create_memory_file("x", abi::kSegmentBytes, Fill::kSparse);
  ASSERT_TRUE(fd);
  Result<Segment> segment = Segment::attach(fd.take());
  ASSERT_FALSE(segment);
  EXPECT_EQ(segment.error().code, EPROTO);
}

}  // namespace
}  // namespace tube::shared

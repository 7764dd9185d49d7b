// What an image's kernels may write to, and the capture of this process's own output.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "image/fatbin.h"
#include "protocol/handle_id.h"
#include "proxy/code/image_scan.h"
#include "proxy/common/process_output.h"
#include "tests/unit/image/fatbin_bytes.h"

namespace tube::proxy {
namespace {

const int kCapabilities[] = {90};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Fewer than 15 bytes as LZ4 packs what does not repeat.
std::string packed(const std::string& text) { return static_cast<char>(text.size() << 4) + text; }

TEST(ImageScan, TextThatPrintsAndTextThatDoesNot) {
  EXPECT_EQ(scan_image(bytes_of("// PTX\n.extern .func vprintf"), kCapabilities).all,
            wire::kKernelPrints);
  EXPECT_EQ(scan_image(bytes_of("// PTX\n.extern .func __assertfail"), kCapabilities).all,
            wire::kKernelAsserts);
  EXPECT_EQ(scan_image(bytes_of("// PTX\n.entry quiet"), kCapabilities).all, 0u);
  EXPECT_EQ(scan_image({}, kCapabilities).all, 0u);
}

TEST(ImageScan, OnlyTheEntriesThatTheGpuTakesCount) {
  const image::Part other{image::EntryKind::kElf, 80, "vprintf"},
      quiet{image::EntryKind::kElf, 90, "nothing"}, ptx{image::EntryKind::kPtx, 75, "vprintf"};
  EXPECT_EQ(scan_image(bytes_of(image::fatbin_of({other, quiet})), kCapabilities).all, 0u);
  EXPECT_EQ(scan_image(bytes_of(image::fatbin_of({other, quiet, ptx})), kCapabilities).all, 0u)
      << "machine code is taken before PTX";
  EXPECT_EQ(scan_image(bytes_of(image::fatbin_of({other, ptx})), kCapabilities).all,
            wire::kKernelPrints);
  EXPECT_EQ(
      scan_image(
          bytes_of(image::fatbin_of({{image::EntryKind::kElf, 90, "vprintf and __assertfail"}})),
          kCapabilities)
          .all,
      wire::kKernelPrints | wire::kKernelAsserts);
  const int both[] = {90, 80};
  EXPECT_EQ(scan_image(bytes_of(image::fatbin_of({other, quiet})), both).all, wire::kKernelPrints);
}

TEST(ImageScan, PackedEntriesMayTakeSoMuchTogether) {
  constexpr uint64_t kMost = 1000;
  const image::Part quiet{image::EntryKind::kElf, 90, packed("nothing"), 100},
      greedy{image::EntryKind::kElf, 90, packed("nothing"), kMost};
  const image::Part plain{image::EntryKind::kElf, 90, std::string(2 * kMost, 'x')};
  const std::vector<image::Part> many(10, quiet);
  std::vector<image::Part> more = many;
  more.push_back(plain);
  EXPECT_EQ(scan_image(bytes_of(image::fatbin_of(more)), kCapabilities, kMost).all, 0u)
      << "what is not packed does not count";
  for (const image::Part& one : {quiet, greedy}) {
    std::vector<image::Part> too_many = many;
    too_many.insert(too_many.begin() + 3, one);
    const ImageFacts facts = scan_image(bytes_of(image::fatbin_of(too_many)), kCapabilities, kMost);
    EXPECT_EQ(facts.all, kRuntimeFlags | kImageManaged) << "the worst is assumed";
    EXPECT_FALSE(facts.stateless);
    EXPECT_TRUE(facts.by_function.empty());
  }
}

// Each may claim a gigabyte, which takes a tenth of a second to look at: all of them together must
// not take minutes.
TEST(ImageScan, TenThousandGreedyEntriesAreGivenUpOn) {
  const image::Part greedy{image::EntryKind::kElf, 90, packed("nothing"),
                           image::kMaxUnpackedBytes / 4};
  const std::string image = image::fatbin_of(std::vector<image::Part>(10'000, greedy));
  EXPECT_NE(scan_image(bytes_of(image), kCapabilities).all, 0u);
  image::FatbinReader reader(reinterpret_cast<const std::byte*>(image.data()), image.size());
  image::Unpacker unpacker;
  image::Entry entry;
  std::string bytes;
  int read = 0;
  while (reader.next(&entry)) read += unpacker.unpack(entry, &bytes);
  EXPECT_EQ(read, 4);
  EXPECT_TRUE(unpacker.exhausted());
}

TEST(ImageScan, DamageIsNoTrouble) {
  const std::string whole = image::fatbin_of(
      {{image::EntryKind::kElf, 90, "vprintf"}, {image::EntryKind::kPtx, 75, "vprintf"}});
  for (size_t size = 0; size < whole.size(); ++size)
    (void)scan_image(bytes_of(whole.substr(0, size)), kCapabilities);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(0xff);
    (void)scan_image(bytes_of(damaged), kCapabilities);
  }
}

TEST(Fatbin, AnEntryBeyondTheEndIsToldFromTheEnd) {
  std::string whole = image::fatbin_of({{image::EntryKind::kPtx, 75, "one"}});
  image::FatbinReader good(reinterpret_cast<const std::byte*>(whole.data()), whole.size());
  image::Entry entry;
  EXPECT_TRUE(good.next(&entry));
  EXPECT_FALSE(good.next(&entry));
  EXPECT_EQ(good.trouble(), nullptr);
  whole[sizeof(image::FatbinHeader) + 8] = 100;  // the payload's size
  image::FatbinReader bad(reinterpret_cast<const std::byte*>(whole.data()), whole.size());
  EXPECT_FALSE(bad.next(&entry));
  EXPECT_NE(bad.trouble(), nullptr);
}

// In a child: the capture is for the whole process.
TEST(ProcessOutput, TakesWhatWasPrintedAndForwardsTheRest) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], 1);
    std::string first, second, third;
    ProcessOutput& output = *new ProcessOutput;
    {
      if (!output.capture().ok()) _exit(1);
      printf("from a kernel");
      output.take(&first);
      for (int i = 0; i < 30000; ++i) printf("%07d\n", i);
      output.take(&second);
      output.take(&third);
      fprintf(stderr,
              "something else\nkernels.cu:7: void k(): block: [0,0,0], thread: [1,0,0] Assertion "
              "`x` failed.\n");
      const std::string assertions = output.take_assertions();
      if (assertions !=
          "kernels.cu:7: void k(): block: [0,0,0], thread: [1,0,0] Assertion `x` failed.\n")
        _exit(2);
      if (!output.take_assertions().empty()) _exit(3);
      printf("nobody's");
      output.finish();
    }
    _exit(first == "from a kernel" && second.size() == 240000 && third.empty() ? 0 : 4);
  }
  close(pipe_ends[1]);
  char text[64] = {};
  EXPECT_EQ(read(pipe_ends[0], text, sizeof text), 8);
  EXPECT_STREQ(text, "nobody's");
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(pipe_ends[0]);
}

}  // namespace
}  // namespace tube::proxy

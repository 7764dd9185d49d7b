// What a program without our socket takes for its proxy's life and death.
#include "hook/process/proxy_life.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/unique_fd.h"
#include "sharedmem/socket.h"

namespace tube::hook {
namespace {

// This process serves the sockets, so it is the proxy.
class ProxyLife : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tube-life-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder = name;
    place.pid = getpid();
    place.control_path = folder + "/w.ctl";
    place.data_path = folder + "/w.sock";
    serve();
    ASSERT_EQ(stat(place.data_path.c_str(), &place.data_file), 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  void serve() {
    Result<UniqueFd> one = shared::listen_unix(place.control_path, SOCK_STREAM);
    Result<UniqueFd> other = shared::listen_unix(place.data_path, SOCK_SEQPACKET);
    ASSERT_TRUE(one.ok() && other.ok());
    control = one.take();
    data = other.take();
  }

  std::string folder;
  ProxyPlace place;
  UniqueFd control, data;
};

TEST_F(ProxyLife, IsAskedOfTheSocketThatIsSeen) {
  EXPECT_TRUE(proxy_answers(place));
  unlink(place.control_path.c_str());
  EXPECT_TRUE(proxy_answers(place));
  data.reset();
  EXPECT_FALSE(proxy_answers(place));
}

TEST_F(ProxyLife, EndsWhereNobodyServesTheSocket) {
  control.reset();
  EXPECT_FALSE(proxy_answers(place));
}

TEST_F(ProxyLife, IsNotThatOfTheNextProxy) {
  data.reset();
  control.reset();
  unlink(place.data_path.c_str());
  serve();  // in a file of its own, whatever number that has
  place.data_file.st_mtim.tv_nsec ^= 1;
  EXPECT_FALSE(proxy_answers(place));
  ASSERT_EQ(stat(place.data_path.c_str(), &place.data_file), 0);
  EXPECT_TRUE(proxy_answers(place));
  place.pid = 1;
  EXPECT_FALSE(proxy_answers(place));
}

TEST_F(ProxyLife, IsThatOfTheProcessWhereNoSocketIsSeen) {
  unlink(place.control_path.c_str());
  unlink(place.data_path.c_str());
  EXPECT_TRUE(proxy_answers(place));
  place.pid = fork();
  if (place.pid == 0) _exit(0);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(place.pid), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(proxy_answers(place));  // nobody has asked for it yet
  ASSERT_EQ(waitpid(place.pid, nullptr, 0), place.pid);
  EXPECT_FALSE(proxy_answers(place));
  place.pid = 0;
  EXPECT_FALSE(proxy_answers(place));
}

TEST_F(ProxyLife, IsNotDoubtedForWantOfDescriptors) {
  rlimit own;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &own), 0);
  rlimit none = own;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool answers = proxy_answers(place);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &own), 0);
  EXPECT_TRUE(answers);
}

}  // namespace
}  // namespace tube::hook

// A case of two processes. Other forks before any CUDA call and runs a function in the child; the
// two pass bytes and fds through a socket pair, which is also how they take turns. What the child
// printed comes out of the parent when it finishes, behind a prefix, so that the transcript does
// not depend on who was faster.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/conformance/case.h"

class Link {
 public:
  explicit Link(int fd) : fd_(fd) {}
  template <typename T>
  void send(const T& value) {
    EXPECT(write(fd_, &value, sizeof(value)) == static_cast<ssize_t>(sizeof(value)));
  }
  template <typename T>
  T receive() {
    T value{};
    size_t got = 0;
    while (got < sizeof(value)) {
      const ssize_t n = read(fd_, reinterpret_cast<char*>(&value) + got, sizeof(value) - got);
      EXPECT(n > 0);
      got += static_cast<size_t>(n);
    }
    return value;
  }
  // Turns: one side says done(), the other waits for it.
  void done() { send<char>('.'); }
  void wait() { EXPECT(receive<char>() == '.'); }

  void send_fd(int fd) {
    char byte = 'f';
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    EXPECT(sendmsg(fd_, &message, 0) == 1);
  }
  int receive_fd() {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    EXPECT(recvmsg(fd_, &message, MSG_CMSG_CLOEXEC) == 1 && byte == 'f');
    int fd = -1;
    EXPECT(CMSG_FIRSTHDR(&message) != nullptr);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
  }

 private:
  int fd_;
};

class Other {
 public:
  explicit Other(void (*body)(Link&)) : link_(-1) {
    int ends[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    output_ = memfd_create("output", 0);
    fflush(stdout);
    pid_ = fork();
    EXPECT(pid_ >= 0);
    if (pid_ == 0) {
      close(ends[0]);
      dup2(output_, STDOUT_FILENO);
      Link link(ends[1]);
      body(link);
      fflush(stdout);
      exit(0);
    }
    close(ends[1]);
    link_ = Link(ends[0]);
  }
  ~Other() { finish(); }
  Link& link() { return link_; }

  // Waits for its end and prints what it said.
  void finish() {
    if (pid_ == 0) return;
    int status = 0;
    EXPECT(waitpid(pid_, &status, 0) == pid_);
    pid_ = 0;
    FILE* said = fdopen(output_, "r");
    rewind(said);
    char line[1024];
    while (fgets(line, sizeof(line), said) != nullptr) printf("  other: %s", line);
    fclose(said);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }

 private:
  pid_t pid_ = 0;
  int output_ = -1;
  Link link_;
};

#include "hook/process/connection.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "hook/process/process.h"
#include "hook/process/start_trace.h"
#include "policies/launch_priority.h"
#include "protocol/wire.gen.h"
#include "sharedmem/greeting.h"
#include "sharedmem/life_lock.h"
#include "sharedmem/socket.h"

namespace tube::hook {
namespace {

constexpr int kGreetTimeoutMs = 20'000;  // a proxy that is just starting its GPUs answers late
// Programs use small numbers themselves, shells and daemons close them. Not above 63: the kernel
// enlarges a descriptor table of several threads only after an RCU grace period, 13 ms here.
constexpr int kFirstFd = 40;

std::string workflow_name() {
  const char* name = env_text(Env::kWorkflow);
  return name == nullptr ? "default" : name;
}

// As the environment says; what it does not understand is normal.
policies::LaunchPriority priority() {
  const char* text = env_text(Env::kPriority);
  return policies::parse_launch_priority(text != nullptr ? text : "")
      .value_or(policies::LaunchPriority::kNormal);
}

bool wants_lazy_memory() {
  const char* text = env_text(Env::kMemoryMode);
  return text != nullptr && std::strcmp(text, "lazy") == 0;
}

std::string function_name() {
  if (const char* name = env_text(Env::kFunction)) return name;
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/thread-self/exe", path, sizeof path - 1);
  if (n <= 0) return "unknown";
  path[n] = 0;
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// Out of the way of programs that close or replace low fd numbers.
UniqueFd move_high(UniqueFd fd) {
  const int high = fcntl(fd.get(), F_DUPFD_CLOEXEC, kFirstFd);
  return high < 0 ? std::move(fd) : UniqueFd(high);
}

Result<UniqueFd> connect_socket(const std::string& workflow) {
  if (!valid_workflow_name(workflow)) {
    return errorf("TUBE_WORKFLOW '%s' is not a workflow name (letters, digits, _ . -, at most 64)",
                  workflow.c_str());
  }
  Result<std::string> directory = find_runtime_dir();
  const bool no_directory = !directory && directory.error().code == ENOENT;
  if (!directory && !no_directory) return directory.error();
  if (!no_directory) {
    Result<UniqueFd> socket =
        shared::connect_unix(data_socket_path(*directory, workflow), SOCK_SEQPACKET);
    if (socket) return move_high(socket.take());
    if (socket.error().code != ENOENT && socket.error().code != ECONNREFUSED) return socket.error();
  }
  return errorf(
      "no proxy is running for workflow '%s' (looked in %s); start one with `tubectl proxy start "
      "--workflow %s`, "
      "or run this program with `tubectl run --workflow %s -- ...`",
      workflow.c_str(), runtime_dir_path().c_str(), workflow.c_str(), workflow.c_str());
}

Status map_info(Connection& c, UniqueFd fd) {
  const uint64_t size_bytes = c.welcome.info_bytes;
  if (size_bytes < sizeof(info::InfoHeader))
    return errorf("the proxy's device information is too short");
  if (Status sealed = shared::verify_memory_file(fd.get(), size_bytes, true); !sealed)
    return sealed;
  Result<Mapping> mapped = Mapping::map(fd.get(), 0, size_bytes, PROT_READ);
  if (!mapped) return mapped.error();
  c.info_memory = mapped.take();
  c.info = reinterpret_cast<const info::InfoHeader*>(c.info_memory.data());
  if (c.info->magic != info::kInfoMagic ||
      c.info->device_stride_bytes != sizeof(info::DeviceInfo) ||
      c.info->device_count > info::kMaxDevices ||
      info::info_bytes(c.info->device_count) > size_bytes) {
    return errorf(
        "the proxy's device information is of another version of Tube; install one version on both "
        "sides");
  }
  c.device_infos = reinterpret_cast<const info::DeviceInfo*>(c.info + 1);
  return {};
}

bool proxy_lives(void* context, bool socket_says) {
  const auto& c = *static_cast<const Connection*>(context);
  return socket_says || c.socket_is_ours() ? socket_says : proxy_answers(c.place);
}

Status attach(Connection& c, shared::Greeted greeted) {
  c.welcome = greeted.welcome;
  if (Result<Mapping> life = shared::hold_life_lock(greeted.segment.get())) c.life = life.take();
  Result<shared::Segment> segment = shared::Segment::attach(std::move(greeted.segment));
  if (!segment) return segment.error();
  c.segment = segment.take();
  if (!c.windows.keep_only(c.welcome.window))
    return errorf("the proxy chose address window %u, which is not ours", c.welcome.window);
  if (c.welcome.client_slot >= windows::kMaxClients)
    return errorf("the proxy chose client slot %u", c.welcome.client_slot);
  if (Status s =
          c.windows.map_pinned(c.welcome.window, c.welcome.client_slot, greeted.pinned.get());
      !s)
    return s;
  c.windows.leak();
  if (Status s = map_info(c, std::move(greeted.info)); !s) return s;
  if (const auto set = env_number(Env::kSpinUs)) c.waiter.set_spin_us(static_cast<uint32_t>(*set));
  else c.waiter.follow(&c.segment.header().spin_us);
  c.peer =
      shared::Peer{c.socket.get(), &c.segment.header(), &c.stop, c.socket_inode, proxy_lives, &c};
  c.waiter.count_into(&c.segment.wait_counters());
  c.ring.attach(c.segment, c.waiter, c.peer);
  c.replies.attach(c.segment, c.waiter, c.peer);
  c.words.attach(c.segment, c.waiter, c.peer);
  c.chunks.attach(c.segment, c.waiter, c.peer);
  c.offers.attach(c.segment);
  return {};
}

}  // namespace

Result<Connection*> connect_to_proxy() {
  const std::string workflow = workflow_name();
  Result<UniqueFd> socket = connect_socket(workflow);
  if (!socket) return socket.error();
  auto* c = new (std::nothrow) Connection;
  if (c == nullptr) return errorf("out of memory");
  mark_start(StartMark::kConnected);
  c->socket = socket.take();
  // Room for as many files on their way as there may be (send_file); what the system does not grant
  // is a matter of programs with hundreds of threads.
  const int send_bytes = 1 << 20;
  (void)setsockopt(c->socket.get(), SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
  c->socket_inode = shared::socket_inode(c->socket.get());
  c->place = place_of_proxy(c->socket.get(), workflow);
  c->windows = shared::WindowReservation::take_all();
  mark_start(StartMark::kReserved);
  if (c->windows.free_mask() == 0) return errorf("%s", shared::describe_taken_windows(0).c_str());
  handshake::Hello hello =
      shared::make_hello(wire::kProtocolHash, function_name(), TUBE_VERSION,
                         std::getenv("CUDA_VISIBLE_DEVICES"), c->windows.free_mask());
  hello.slo_ms = env_number(Env::kSloMs).value_or(0);
  hello.infer_ms = env_number(Env::kInferMs).value_or(0);
  hello.sm_percent =
      static_cast<uint32_t>(std::min<uint64_t>(env_number(Env::kSmPercent).value_or(0), 100));
  hello.priority = static_cast<int32_t>(priority());
  hello.lazy_memory = wants_lazy_memory() ? 1 : 0;
  const uint64_t memory_bytes = env_byte_limit(Env::kMemory).value_or(policies::kNoMemoryLimit);
  hello.memory_bytes = memory_bytes == policies::kNoMemoryLimit ? 0 : memory_bytes;
  Result<shared::Greeted> greeted = shared::greet(c->socket.get(), hello, kGreetTimeoutMs);
  mark_start(StartMark::kGreeted);
  Status attached = greeted ? attach(*c, greeted.take()) : Status(greeted.error());
  if (!attached) {
    Error error = attached.error();
    error.message = "workflow '" + workflow + "': " + error.message;
    delete c;
    return error;
  }
  mark_start(StartMark::kAttached);
  return c;
}

namespace {
Status lost_socket() {
  return Error{EBADF,
               "this program closed the connection to its proxy (a descriptor it did not open): no "
               "file can be sent"};
}
}  // namespace

Status send_file(int fd, uint64_t* token) {
  Connection& c = connection();
  if (!c.socket_is_ours()) return lost_socket();
  *token = c.next_token++;
  return shared::send_fd(c.socket.get(), *token, fd, shared::SendMode::kNeverBlock);
}

Result<UniqueFd> take_file(uint64_t token) {
  // Replies that carry fds are rare and their callers are serialised here; an fd for another waiter
  // is kept for it.
  struct Waiting {
    uint64_t token;
    UniqueFd fd;
  };
  static std::vector<Waiting>* early = new std::vector<Waiting>;  // under fd_lock; leaked
  Connection& c = connection();
  Locked locked(c.fd_lock);
  for (size_t i = 0; i < early->size(); ++i) {
    if ((*early)[i].token != token) continue;
    UniqueFd fd = std::move((*early)[i].fd);
    early->erase(early->begin() + static_cast<long>(i));
    return fd;
  }
  for (;;) {
    if (!c.socket_is_ours()) return lost_socket().error();
    Result<shared::TokenFd> received = shared::receive_fd(c.socket.get(), 1000);
    if (!received) return received.error();
    if (received->token == token) return std::move(received->fd);
    early->push_back({received->token, std::move(received->fd)});
  }
}

CUresult hand_over_file(uint64_t token, const char* what, void* handle) {
  Result<UniqueFd> fd = take_file(token);
  if (!fd) {
    log_error("%s did not arrive: %s", what, fd.error().message.c_str());
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  const int number = fd->release();
  std::memcpy(handle, &number, sizeof number);
  return CUDA_SUCCESS;
}

}  // namespace tube::hook

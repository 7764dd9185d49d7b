// tubed: one proxy for one workflow. Reads its flags, finds its driver, opens the GPUs, serves
// until it is told to stop.
//
// Exit status: 0 after an ordered stop, 1 when it could not start (one line on stderr says why), 2
// for a wrong flag.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/byte_size.h"
#include "base/cores.h"
#include "base/env.h"
#include "base/log.h"
#include "base/log_stamps.h"
#include "base/runtime_dir.h"
#include "base/scope_guard.h"
#include "base/unique_fd.h"
#include "policies/spin.h"
#include "protocol/driver_table.gen.h"
#include "proxy/code/image_trials.h"
#include "proxy/common/backend.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/contained.h"
#include "proxy/common/crash_trace.h"
#include "proxy/common/layout.h"
#include "proxy/common/process_output.h"
#include "proxy/common/restart.h"
#include "proxy/common/self_defence.h"
#include "proxy/common/version.h"
#include "proxy/common/workflow_owner.h"
#include "proxy/gpu/device_output.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/gpu/slow_calls.h"
#include "proxy/server/server.h"
#include "proxy/store/store_options.h"

namespace {

using namespace tube;
using namespace tube::proxy;

struct Options {
  std::string workflow = "default";
  std::string gpus;
  std::string backend = "auto";
  std::string driver;
  std::string sim;
  std::string log;
  std::string copy_policy = "deadlines";
  std::string launch_policy = "feedback";
  std::string inherit;
  std::optional<uint64_t> pinned;
  std::string memory = "none";
  std::string function_memory = "none";
  int ready_fd = -1;
  bool foreground = true;
  bool moved = false;
  bool slices = false;
  uint32_t hang_timeout = 0;  // seconds
  std::string share_store;
  bool verify_shared = false;
  uint32_t weight = policies::kProxyWeight;
  std::string on_fault = "wait";
  std::string profile;
  std::string compile = "inline";
  int trial_fd = -1;  // this process is a child that tries an image
};

constexpr int kDescriptors = 1023;  // six for each function, and the driver's own

bool many_cores() { return usable_cores() >= policies::kCoresToSpin; }

// Spinning pays where a session and its client can both have a core; on a small machine it only
// takes the other's time.
uint32_t default_spin_us() {
  if (auto set = env_number(Env::kSpinUs)) return static_cast<uint32_t>(*set);
  return many_cores() ? policies::kDefaultSpinUs : 0;
}

uint32_t cores_to_share() { return env_number(Env::kSpinUs) ? 0 : usable_cores(); }

// Holding launches for a few microseconds pays where the session spins for the next one anyway;
// elsewhere while the ring has records.
uint32_t coalesce_us() {
  if (auto set = env_number(Env::kCoalesceUs)) return static_cast<uint32_t>(*set);
  return many_cores() ? 5 : 1;
}

// What one of a variable's words means; `otherwise`, as without it, when it is none of them.
template <class Value>
Value word_of(Env variable, std::optional<Value> (*parse)(std::string_view), Value otherwise,
              const char* expected) {
  const char* text = env_text(variable);
  if (text == nullptr) return otherwise;
  const std::optional<Value> value = parse(text);
  if (!value) log_warn("%s=%s: expected %s is used", env_entry(variable).name, text, expected);
  return value.value_or(otherwise);
}

policies::LaneUse lane_use() {
  return word_of(Env::kCopyLane, policies::lane_use, policies::LaneUse::kAuto,
                 "auto, always or never; auto");
}

uint32_t teardown_ms() {
  const uint64_t most = limits::kTeardownMs;
  return static_cast<uint32_t>(std::min(env_number(Env::kTeardownMs).value_or(most), most));
}

uint32_t spares() { return static_cast<uint32_t>(env_number(Env::kSpares).value_or(2)); }

uint32_t seconds_or(Env variable, uint32_t otherwise) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(env_number(variable).value_or(otherwise), uint64_t{86'400}));
}

policies::PinnedBudget pinned_budget(const Options& options) {
  return options.pinned ? policies::PinnedBudget{*options.pinned}
                        : policies::default_pinned_budget(usable_memory_bytes());
}

uint64_t pool_bytes() { return env_number(Env::kPool).value_or(policies::kDefaultPoolBytes); }

policies::PoolPolicy pool_policy() {
  return word_of(Env::kPoolPolicy, policies::parse_pool_policy, policies::PoolPolicy::kKeep,
                 "demand, keep or static; keep");
}

Evictor::Options evict_options() {
  Evictor::Options options;
  options.host_bytes = usable_memory_bytes() / 2;
  if (const char* text = env_text(Env::kEvictHost)) {
    const auto bytes = parse_byte_size(text);
    if (bytes.ok()) options.host_bytes = *bytes;
    else if (std::string_view(text) == "0") options.host_bytes = 0;
    else log_warn("TUBE_EVICT_HOST: %s; half of the memory is used", bytes.error().message.c_str());
  }
  if (const auto wait_ms = env_number(Env::kMemoryWaitMs))
    options.wait_ns = std::min(*wait_ms, uint64_t{limits::kMemoryWaitMs}) * 1'000'000;
  options.order = word_of(Env::kEvictPolicy, policies::parse_eviction_order,
                          policies::EvictionOrder::kQueue, "queue or lru; queue");
  constexpr uint64_t kMostMs = 86'400'000;
  options.idle_ns = std::min(env_number(Env::kEvictIdleMs).value_or(0), kMostMs) * 1'000'000;
  return options;
}

// Half of the hardware queues (prepare_process), an eighth for one function beside others.
policies::WaitRoom wait_room() {
  const char* text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int queues = text != nullptr ? std::atoi(text) : 0;
  const auto all = static_cast<uint32_t>(std::clamp(queues, 2, 32)) / 2;
  return {all, std::max(1u, all / 4)};
}

// Before any thread, because the driver reads the environment; the signals go to the server's
// signalfd.
void prepare_process(const Options& options) {
  // Streams of different functions then rarely share a hardware queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // Eagerly, one function's library would go into the contexts of all GPUs, and the load wait for
  // all of them (docs/decisions/0009).
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  setenv("CUDA_MODULE_DATA_LOADING", "LAZY", 1);
  if (!options.gpus.empty()) {
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
    setenv("CUDA_VISIBLE_DEVICES", options.gpus.c_str(), 1);
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  struct sigaction hangup {};  // nohup's word stands
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  // Enlarging the descriptor table costs a process with threads an RCU grace period (some 10 ms),
  // this one nothing yet.
  close(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kDescriptors));
}

// For the proxy that replaces this one; nobody waits for it to be ready any more.
std::vector<std::string> arguments_again(const Options& options, Server& server) {
  std::vector<std::string> arguments{"tubed",
                                     "--workflow",
                                     options.workflow,
                                     "--backend",
                                     options.backend,
                                     "--copy-policy",
                                     options.copy_policy,
                                     "--launch-policy",
                                     options.launch_policy,
                                     "--weight",
                                     std::to_string(options.weight),
                                     "--memory",
                                     byte_limits_text(server.memory_limits()),
                                     "--function-memory",
                                     byte_limit_text(server.function_memory_limit()),
                                     "--on-fault",
                                     options.on_fault,
                                     "--compile",
                                     options.compile};
  const std::pair<const char*, const std::string&> optional[] = {
      {"--gpus", options.gpus}, {"--driver", options.driver},
      {"--sim", options.sim},   {"--share-store", options.share_store},
      {"--log", options.log},   {"--profile", options.profile}};
  for (const auto& [flag, value] : optional) {
    if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
  }
  if (options.slices) arguments.emplace_back("--slices");
  if (options.verify_shared) arguments.emplace_back("--verify-shared");
  if (options.hang_timeout != 0)
    arguments.insert(arguments.end(), {"--hang-timeout", std::to_string(options.hang_timeout)});
  if (options.pinned)
    arguments.insert(arguments.end(), {"--pinned", std::to_string(*options.pinned)});
  return arguments;
}

constexpr int kPauseMs = 100;

// Also when memory has run out, which may be why. Returns when the system refuses.
Error start_anew(const Options& options, Server& server) {
  Error failed{0, "no memory"};
  Inheritance heir;
  while (!contained("the new start of the proxy", [&] {
    if (!heir.valid()) heir = server.hand_over();
    failed = restart(heir, arguments_again(options, server));
  }))
    poll(nullptr, 0, kPauseMs);
  return failed;
}

Status announce(const Options& options, const Server& server, ProcessOutput& output) {
  output.forward("tubed: ready workflow=" + options.workflow + " socket=" + server.socket_path() +
                 "\n");
  if (options.ready_fd < 0) return {};
  if (write(options.ready_fd, "R", 1) != 1) return errno_error(errno, "--ready-fd");
  close(options.ready_fd);
  return {};
}

void prepare_contexts(const Driver& driver, const Gpus& gpus) {
  for (uint32_t gpu = 0; gpu < gpus.count(); ++gpu) {
    CUresult error = driver.cuCtxSetCurrent(gpus[gpu].context);
    if (error == CUDA_SUCCESS) error = gpus.gate().prepare(gpus[gpu].device, gpus[gpu].context);
    if (error != CUDA_SUCCESS)
      log_warn("GPU %d: no kernel of our own can be launched: %s", gpus[gpu].ordinal,
               result_text(driver, error).c_str());
  }
  (void)driver.cuCtxSetCurrent(gpus[0].context);
}

// After the description of the GPUs was made, which says what functions find by default.
void reserve_heaps(const Driver& driver, Gpus& gpus) {
  const auto mib = env_number(Env::kDeviceHeap);
  if (!mib) return;
  constexpr uint64_t kMost = uint64_t{1} << 30;  // MiB: no GPU has so much
  for (uint32_t gpu = 0; gpu < gpus.count(); ++gpu) {
    CUresult error = driver.cuCtxSetCurrent(gpus[gpu].context);
    if (error == CUDA_SUCCESS)
      error = gpus[gpu].limits.reserve_heap(driver, std::min(*mib, kMost) << 20);
    if (error != CUDA_SUCCESS)
      log_warn("GPU %d: TUBE_DEVICE_HEAP_MIB=%lu has no effect: %s", gpus[gpu].ordinal, *mib,
               result_text(driver, error).c_str());
  }
  (void)driver.cuCtxSetCurrent(gpus[0].context);
}

CopyEngine::Options copy_options(const Options& options, const std::string& folder) {
  return {
      .use = lane_use(),
      .order =
          policies::parse_link_order(options.copy_policy).value_or(policies::LinkOrder::kDeadlines),
      .links_path = folder + "/links",
      .workflow = options.workflow,
      .weight = options.weight,
      .paths = static_cast<uint32_t>(
          std::min<uint64_t>(env_number(Env::kCopyPaths).value_or(0), policies::kMaxHostPaths)),
      .many_cores = many_cores()};
}

LaunchTurns::Options launch_options(const Options& options) {
  constexpr uint64_t kMostMs = 60'000, kMostUs = 1'000'000'000;
  return {
      .order = policies::parse_launch_order(options.launch_policy)
                   .value_or(policies::LaunchOrder::kFeedback),
      .longest_hold_ns =
          std::clamp<uint64_t>(env_number(Env::kLaunchHoldMs).value_or(100), 1, kMostMs) *
          1'000'000,
      .long_ns = std::min<uint64_t>(env_number(Env::kLaunchLongUs).value_or(1000), kMostUs) * 1000,
      .weight = options.weight};
}

ServerOptions server_options(const Options& options, const std::string& folder, bool is_sim,
                             const Inheritance& inherited, int owner, DeviceOutput* output) {
  return {
      .workflow = options.workflow,
      .runtime_dir = folder,
      .is_sim = is_sim,
      .spin_us = default_spin_us(),
      .cores_to_share = cores_to_share(),
      .rhythm = env_flag(Env::kRhythm, true),
      .coalesce_us = coalesce_us(),
      .spares = spares(),
      .share_modules = env_flag(Env::kShareModules, true),
      .keeps_record = options.profile.empty(),
      .inherited = inherited,
      .owner = owner,
      .output = output,
      .stopped_s = seconds_or(Env::kStoppedSeconds, 60),
      .hang_s = options.hang_timeout,
      .stall_s = seconds_or(Env::kStallSeconds, 10),
      .gpus = options.gpus,
      .teardown_ms = teardown_ms(),
      .copies = copy_options(options, folder),
      .launches = launch_options(options),
      .slices_at_start = options.slices,
      .keep_slices_ns =
          std::min<uint64_t>(env_number(Env::kAutoSliceMs).value_or(2000), 3'600'000) * 1'000'000,
      .wait_room = wait_room(),
      .pinned = pinned_budget(options),
      .pool_bytes = options.profile.empty() ? pool_bytes() : 0,  // what it keeps is backed
      .memory = *parse_byte_limits(options.memory),
      .function_memory = *parse_byte_limit(options.function_memory),
      .evict = evict_options(),
      .host = policies::default_host_budget(usable_memory_bytes()),
      .store = store_options(options.share_store, options.verify_shared, options.workflow, folder),
      .lazy_backing = env_flag(Env::kLazyBacking, true),
      .profile = options.profile,
      .end_on_fault = options.on_fault == "end",
      .pool_policy = pool_policy()};
}

void try_images_first(const Options& options, const Backend& backend) {
  if (options.compile == "child")
    use_image_trials({.driver = backend.path,
                      .takes_no_code = backend.is_sim,
                      .seconds = static_cast<uint32_t>(std::clamp<uint64_t>(
                          env_number(Env::kCompileSeconds).value_or(60), 1, 3600))});
}

// Of this process: the lock, and with it the sockets that a predecessor left open.
Result<UniqueFd> take_over(const Options& options, const std::string& folder,
                           Inheritance* inherited) {
  constexpr uint32_t kPatienceMs = 60'000;  // as long as `tubectl proxy stop` waits for an end
  if (options.inherit.empty()) return own_workflow(folder, options.workflow, kPatienceMs);
  if (!parse_inheritance(options.inherit, inherited))
    return errorf("--inherit is for tubed itself");
  return UniqueFd(inherited->owner);
}

Status serve(const Options& options) {
  if (!valid_workflow_name(options.workflow)) {
    return errorf("'%s' is no workflow name: letters, digits, '_', '.' and '-', at most 64",
                  options.workflow.c_str());
  }
  Result<std::string> folder = make_runtime_dir();
  if (!folder.ok()) return folder.error();
  defend_log(*folder);
  say_limits();
  Inheritance inherited;
  const Result<UniqueFd> owner = take_over(options, *folder, &inherited);
  if (!owner.ok()) return owner.error();
  BackendOptions backend_options;
  backend_options.choice = options.backend == "driver" ? BackendChoice::kDriver
                           : options.backend == "sim"  ? BackendChoice::kSim
                                                       : BackendChoice::kAuto;
  backend_options.driver_path = options.driver;
  backend_options.sim_path = options.sim;
  static ProcessOutput& output =
      *new ProcessOutput;  // the process's own: the driver's threads may write until its end
  if (Status status = output.capture(); !status.ok()) return status;
  const ScopeGuard finish([] { output.finish(); });
  Driver driver;
  Result<Backend> backend = load_backend(backend_options, driver);
  if (!backend.ok()) return backend.error();
  if (const auto least_us = env_number(Env::kSlowCallUs)) watch_slow_calls(driver, *least_us);
  try_images_first(options, *backend);
  Gpus gpus(driver);
  wrap_driver(driver, gpus.gate());
  if (Status status = gpus.open(); !status.ok()) return status;
  prepare_contexts(driver, gpus);
  log_info("backend %s (%s), driver %d, %u GPU(s)", backend->is_sim ? "sim" : "driver",
           backend->path.c_str(), gpus.driver_version(), gpus.count());
  DeviceOutput device_output(driver, gpus, output);
  Server server(
      driver, gpus,
      server_options(options, *folder, backend->is_sim, inherited, owner->get(), &device_output));
  if (Status status = server.listen(); !status.ok()) return status;
  reserve_heaps(driver, gpus);
  if (Status status = announce(options, server, output); !status.ok()) return status;
  second_start().started();
  if (Status status = server.run(); !status.ok() || !server.restart_wanted()) {
    if (server.close()) return status;
    // Nobody can make the driver give it back; the end of the process does. Destructors, the
    // driver's too, would wait for it.
    log_warn(
        "GPU work of some function does not end: the proxy ends without giving everything back to "
        "the driver");
    output.finish();
    std::_Exit(status.ok() ? 0 : 1);
  }
  output.finish();  // the next one finds standard output where it was
  const Error failed = start_anew(options, server);
  // The sockets are given away and the destructors would wait for the context that is the reason
  // for all this.
  log_error("tubed: %s", failed.message.c_str());
  std::_Exit(1);
}

// What is wrong with an option's text, for CLI11: empty when nothing is.
template <auto parse>
std::string problem_with(const std::string& text) {
  const auto parsed = parse(text);
  return parsed.ok() ? "" : parsed.error().message;
}

void add_store(CLI::App& app, Options& options) {
  app.add_option("--share-store", options.share_store,
                 "objects of the store that the user's other workflows may have: those whose names "
                 "begin with one of these words, with commas between them; all: every one "
                 "(default: none)")
      ->type_name("PREFIXES")
      ->envname(env_entry(Env::kStoreShare).name);
  app.add_flag("--verify-shared", options.verify_shared,
               "find who writes to a sealed object of the store: checksums at the seal and while "
               "it lives; costs a reading of all bytes each time")
      ->envname(env_entry(Env::kStoreVerify).name);
}

void add_memory_options(CLI::App& app, Options& options) {
  app.add_option("--memory", options.memory,
                 "how much memory of each GPU all functions together may take, e.g. 20G, or one "
                 "limit for each GPU, with commas between them (default: none)")
      ->check(problem_with<parse_byte_limits>)
      ->type_name("SIZE");
  app.add_option("--function-memory", options.function_memory,
                 "how much memory of each GPU one function may take at most (default: none)")
      ->check(problem_with<parse_byte_limit>)
      ->type_name("SIZE");
  add_store(app, options);
}

void add_launch_policy(CLI::App& app, Options& options) {
  std::vector<std::string> turns;
  for (const policies::LaunchOrder order : policies::kLaunchOrders)
    turns.emplace_back(policies::launch_order_name(order));
  app.add_option("--launch-policy", options.launch_policy,
                 "whose long kernel or graph runs next where functions share a GPU: native (nobody "
                 "waits), fair, priority, deadlines or feedback")
      ->check(CLI::IsMember(turns))
      ->envname(env_entry(Env::kLaunchPolicy).name)
      ->capture_default_str();
  app.add_option("--hang-timeout", options.hang_timeout,
                 "end a function that sends nothing for so many seconds while a stream of it waits "
                 "for a value and keeps others waiting (default 0: never)")
      ->check(CLI::Range(0u, 86'400u))
      ->envname(env_entry(Env::kHangTimeout).name);
  app.add_option("--weight", options.weight,
                 "this proxy's share of a GPU's time among all that use it: 200 gets twice as much "
                 "as 100")
      ->check(CLI::Range(1u, policies::kMostProxyWeight))
      ->envname(env_entry(Env::kWeight).name)
      ->capture_default_str();
  app.add_flag("--slices", options.slices,
               "split each GPU at the start for functions with --sm-percent, instead of when the "
               "first one comes, beside whatever runs then")
      ->envname(env_entry(Env::kSlices).name);
}

// What one function may do to the others.
void add_containment(CLI::App& app, Options& options) {
  app.add_option(
         "--on-fault", options.on_fault,
         "what becomes of the functions when a kernel ends a GPU's context: wait until they "
         "have left, or end them; then the proxy starts anew")
      ->check(CLI::IsMember({"wait", "end"}))
      ->capture_default_str();
  app.add_option(
         "--compile", options.compile,
         "where clients' PTX is compiled first: inline, or in a child of its own, whose crash "
         "costs one client alone")
      ->check(CLI::IsMember({"inline", "child"}))
      ->envname(env_entry(Env::kCompile).name)
      ->capture_default_str();
  app.add_option("--profile", options.profile)->group("");     // tubectl profile
  app.add_option("--try-image", options.trial_fd)->group("");  // image_trials.h
}

// Or what was asked for is the help, or the version.
int not_parsed(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  // The last line alone is what tubectl shows of a proxy that does not start.
  fprintf(stderr, "tubed: %s; see: tubed --help\n", error.what());
  return 2;
}

int run(int argc, char** argv) {
  Options options;
  if (const char* workflow = env_text(Env::kWorkflow)) options.workflow = workflow;
  CLI::App app{
      "tubed: runs the GPU work of one workflow's functions in one CUDA context per GPU.\n"
      "Usually started by `tubectl run` or `tubectl proxy start`."};
  app.set_version_flag("--version", std::string("tubed ") + kVersion);
  app.add_option("--workflow", options.workflow, "workflow to serve")->capture_default_str();
  app.add_option("--gpus", options.gpus, "GPUs to use, as in CUDA_VISIBLE_DEVICES (default: all)");
  app.add_option("--backend", options.backend,
                 "auto (sim only on a machine without GPUs), driver or sim")
      ->check(CLI::IsMember({"auto", "driver", "sim"}))
      ->envname(env_entry(Env::kBackend).name)
      ->capture_default_str();
  std::vector<std::string> orders;
  for (const policies::LinkOrder order : policies::kLinkOrders)
    orders.emplace_back(policies::link_order_name(order));
  app.add_option("--copy-policy", options.copy_policy,
                 "whose copy goes next where functions share a link: arrival, round-robin "
                 "(StreamBox), rates (FaaSTube) or deadlines")
      ->check(CLI::IsMember(orders))
      ->capture_default_str();
  add_launch_policy(app, options);
  app.add_option("--driver", options.driver, "path of the real libcuda.so.1");
  app.add_option("--sim", options.sim, "path of the simulated GPU's libcuda.so.1");
  app.add_option("--pinned", options.pinned,
                 "bytes of pinned memory to hold ready for functions (default: a thirty-second of "
                 "the memory, 64 MiB to 4 GiB; 0: none)")
      ->transform(CLI::AsSizeValue(false))
      ->envname(env_entry(Env::kPinned).name);
  add_memory_options(app, options);
  add_containment(app, options);
  app.add_option("--inherit", options.inherit)->group("");  // restart.h
  app.add_flag("--moved", options.moved)->group("");        // layout.h
  app.add_option("--ready-fd", options.ready_fd, "write one byte to this fd when ready");
  app.add_option("--log", options.log,
                 "error, warn, info, debug or trace (default: TUBE_LOG, else info)");
  app.add_flag("--foreground", options.foreground, "stay in the foreground (the only way)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return not_parsed(app, error);
  }
  LogLevel level = LogLevel::kInfo;
  if (!options.log.empty() && !parse_log_level(options.log.c_str(), &level)) {
    log_error("--log %s: expected error, warn, info, debug or trace", options.log.c_str());
    return 2;
  }
  if (!options.log.empty() || env_text(Env::kLog) == nullptr) set_log_level(level);
  if (options.trial_fd >= 0) std::_Exit(run_trial(options.trial_fd, options.driver));
  stamp_log_lines();
  if (!options.moved) move_out_of_the_way(argc, argv);
  trace_crashes();
  prepare_process(options);
  defend_process();
  const Status status = serve(options);
  if (status.ok()) return 0;
  log_error("tubed: %s", status.error().message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  int code = 1;
  if (contained("the start of the proxy", [&] { code = run(argc, argv); })) return code;
  second_start().begin();
  return 1;
}

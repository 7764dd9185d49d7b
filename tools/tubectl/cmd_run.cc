// tubectl run: sets the environment that puts the hook under a program, and becomes that program.
//
// There is no process in between: after the exec the program's exit code, signals, terminal and
// parent are its own. What this costs the program is one question to the proxy's control socket
// (well under a millisecond) when a proxy runs.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <memory>

#include "base/env.h"
#include "tools/tubectl/control_client.h"
#include "tools/tubectl/detach.h"
#include "tools/tubectl/launcher.h"
#include "tools/tubectl/program.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

struct RunOptions {
  ProxyOptions proxy;
  std::string function;
  std::string memory;
  size_t slo_ms = 0, infer_ms = 0, sm_percent = 0;
  std::string priority, memory_mode;
  bool no_start = false;
  bool json = false;
  std::vector<std::string> program;  // and its arguments
};

constexpr const char* kRunFooter =
    R"(The program and its arguments stand after --. $TUBE_OFF=1 runs it without Tube.

Examples:
  tubectl run -- ./vector_add
  tubectl run -w shop --function classify -- python classify.py --batch 8
  tubectl run --backend sim -- ./vector_add           on the simulated GPU, whatever the machine has
  tubectl run --slo-ms 100 -- python detect.py        its copies come first while they are late
  tubectl run --memory 4G -- python detect.py         at most 4 GiB of each GPU
  tubectl run --memory-mode lazy -- python detect.py   certified before: tubectl profile -- python detect.py
  tubectl run --sm-percent 12 -- python detect.py     on multiprocessors of its own, beside long kernels
  tubectl run --no-start -- ./vector_add              fail instead of starting a proxy)";

void set_environment(const RunOptions& options, const std::string& hook_lib) {
  put_hook_under({options.proxy.workflow, options.function, hook_lib});
  if (options.slo_ms != 0) setenv("TUBE_SLO_MS", std::to_string(options.slo_ms).c_str(), 1);
  if (options.infer_ms != 0) setenv("TUBE_INFER_MS", std::to_string(options.infer_ms).c_str(), 1);
  if (options.sm_percent != 0)
    setenv("TUBE_SM_PERCENT", std::to_string(options.sm_percent).c_str(), 1);
  if (!options.priority.empty()) setenv("TUBE_PRIORITY", options.priority.c_str(), 1);
  if (!options.memory.empty()) setenv("TUBE_MEMORY", options.memory.c_str(), 1);
  if (!options.memory_mode.empty()) setenv("TUBE_MEMORY_MODE", options.memory_mode.c_str(), 1);
}

int fail(const std::string& message) {
  fmt::print(stderr, "tubectl: {}\n", message);
  return kExitRunFailed;
}

void say_started(const RunOptions& options, const Started& started) {
  if (options.json) {
    Json line = {
        {"started",
         {{"workflow", options.proxy.workflow}, {"pid", started.pid}, {"log", started.log_path}}}};
    fmt::print(stderr, "{}\n", line.dump());
  } else {
    fmt::print(stderr, "tubectl: started proxy `{}` (pid {}, log {})\n", options.proxy.workflow,
               started.pid, started.log_path);
    for (const std::string& kept : limits_that_stay())
      fmt::print(stderr, "tubectl: proxy `{}` keeps of where it was started: {}\n",
                 options.proxy.workflow, kept);
  }
}

// A program that computes on no GPU must not look as if it did.
void say_simulated(const RunOptions& options, const std::string& backend) {
  if (backend != "sim" || options.proxy.backend == "sim") return;
  const std::string text = fmt::format(
      "proxy `{}` has no GPU and uses the simulated one, which is slow and for tests only; "
      "--backend sim or TUBE_BACKEND=sim says that this is wanted, tubectl doctor looks for a GPU",
      options.proxy.workflow);
  if (options.json) fmt::print(stderr, "{}\n", Json{{"warning", text}}.dump());
  else fmt::print(stderr, "tubectl: {}\n", text);
}

// The program's proxy: found, or started unless the user said not to. 0 or an exit code.
int reach_proxy(const RunOptions& options, const Layout& layout) {
  if (options.no_start) {
    const Result<Started> proxy = find_proxy(options.proxy);
    if (!proxy.ok()) return fail(proxy.error().message);
    say_simulated(options, proxy->backend);
    return kExitOk;
  }
  Result<Started> proxy = ensure_proxy(options.proxy, layout);
  if (!proxy.ok()) return fail(proxy.error().message);
  if (!proxy->already_running) say_started(options, *proxy);
  say_simulated(options, proxy->backend);
  return kExitOk;
}

int run(const RunOptions& options) {
  std::vector<std::string> words = options.program;
  if (words.empty()) {
    fmt::print(stderr, "tubectl: run: no program given; try: tubectl run -- ./program\n");
    return kExitUsage;
  }
  if (env_flag(Env::kOff)) return become(words);
  Layout layout = find_layout();
  if (layout.hook_lib.empty())
    return fail(
        "the hook (libcuda.so.1) was not found beside tubectl; point at it with TUBE_HOOK_LIB");
  const Result<std::string> hook_lib = preload_path(layout.hook_lib);
  if (!hook_lib.ok()) return fail(hook_lib.error().message);
  if (int code = reach_proxy(options, layout); code != kExitOk) return code;
  set_environment(options, *hook_lib);
  return become(words);
}

}  // namespace

void add_run(Verb& root) {
  auto options = std::make_shared<RunOptions>();
  Verb verb =
      root.verb("run", "run a CUDA program through a proxy, starting the proxy when none runs");
  verb.footer(kRunFooter)
      .takes_program()
      .workflow(options->proxy.workflow)
      .text("-f,--function", options->function, "NAME",
            "name shown by ps and status (default: the program's file name)")
      .gpus(options->proxy.gpus, "GPUs of a proxy that is started now, e.g. 0,1")
      .backend(options->proxy.backend,
               "of a proxy that is started now: auto, driver or sim ($TUBE_BACKEND, else auto: sim "
               "only where no GPU is, and that is said)")
      .copy_policy(options->proxy.copy_policy, "of a proxy that is started now")
      .memory("--memory", options->memory, false,
              "how much memory of each GPU the program may take, e.g. 4G ($TUBE_MEMORY, else what "
              "the proxy allows each function, and never more)")
      .number("--slo-ms", options->slo_ms,
              "within how many milliseconds a request must be answered: while copies are late they "
              "come before others' (0: whenever)")
      .number("--infer-ms", options->infer_ms,
              "how many of them a request takes without its copies (0: learnt)")
      .number("--sm-percent", options->sm_percent,
              "how many percent of a GPU's multiprocessors are the program's alone while it runs, "
              "at least; the others run on the rest (0: none)")
      .choice("--priority", options->priority, {"high", "normal", "low"},
              "how urgent its kernels are beside those of others that wait (default: normal)")
      .choice("--memory-mode", options->memory_mode, {"whole", "lazy"},
              "when there is memory behind its allocations: all of them before its next work "
              "(whole, the default), or each before the work that its address reaches (lazy), if "
              "tubectl profile has certified it")
      .flag("--slices", options->proxy.slices,
            "a proxy that is started now splits its GPUs at once, not when --sm-percent first asks")
      .number("--hang-timeout", options->proxy.hang_timeout,
              "a proxy that is started now ends a function that sends nothing for so many seconds "
              "while a stream of it waits for a value and keeps others waiting (0: never)")
      .choice(
          "--on-fault", options->proxy.on_fault, {"wait", "end"},
          "what becomes of a proxy's functions when a kernel ends the context: it waits until they "
          "have left (default), or ends them; then it starts anew")
      .flag("--no-start", options->no_start, "fail when no proxy runs instead of starting one")
      .json(options->json)
      .action([options, verb] {
        options->program = verb.program();
        return run(*options);
      });
}

}  // namespace tube::ctl

// tubectl proxy start | stop | list.
#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include <memory>

#include "base/runtime_dir.h"
#include "base/unique_fd.h"
#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/launcher.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

constexpr int kStopTimeoutMs = 60'000;

struct ProxyVerb {
  ProxyOptions proxy;
  bool all = false;
  bool names_only = false;
  bool json = false;
};

int start(const ProxyVerb& options) {
  Result<Started> started = ensure_proxy(options.proxy, find_layout());
  if (!started.ok()) {
    fmt::print(stderr, "tubectl: {}\n", started.error().message);
    return kExitStartFailed;
  }
  if (options.json) {
    Json out = {{"ok", true},
                {"workflow", options.proxy.workflow},
                {"pid", started->pid},
                {"version", started->version},
                {"log", started->log_path},
                {"backend", started->backend},
                {"already_running", started->already_running}};
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("proxy `{}` {}{} (pid {}, log {})\n", options.proxy.workflow,
               started->already_running ? "runs already" : "started",
               started->backend == "sim" ? " on the simulated GPU" : "", started->pid,
               started->log_path);
  }
  return kExitOk;
}

// Waits until process `pid` has ended. False after the timeout.
bool wait_for_end(const UniqueFd& process) {
  if (!process.valid()) return true;
  pollfd waiting{process.get(), POLLIN, 0};
  int got;
  do {
    got = poll(&waiting, 1, kStopTimeoutMs);
  } while (got < 0 && errno == EINTR);
  return got == 1;
}

int stop_one(const std::string& workflow, Json& report) {
  Answer ping = ask(workflow, "ping");
  if (ping.reach != Reach::kAnswered) return report_unusable(workflow, ping);
  // Opened before the request: afterwards the number could belong to another process.
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, ping.pid, 0)));
  Answer answer = ask(workflow, "stop");
  const bool ends_already = answer.reach == Reach::kNotRunning;
  if (!answer.ok() && !ends_already) return report_unusable(workflow, answer);
  if (!wait_for_end(process)) {
    fmt::print(stderr,
               "tubectl: proxy `{}` (pid {}) was told to stop but still runs after {} s; its log: "
               "{}/{}.log\n",
               workflow, ping.pid, kStopTimeoutMs / 1000, runtime_dir_path(), workflow);
    return kExitProblem;
  }
  report.push_back({{"workflow", workflow}, {"pid", ping.pid}});
  return kExitOk;
}

// False: that was said on standard error.
bool every_workflow(std::vector<std::string>* workflows) {
  Result<std::vector<std::string>> known = known_workflows();
  if (!known.ok()) fmt::print(stderr, "tubectl: {}\n", known.error().message);
  if (known.ok()) *workflows = known.take();
  return known.ok();
}

int stop(const ProxyVerb& options) {
  std::vector<std::string> workflows = {options.proxy.workflow};
  if (options.all && !every_workflow(&workflows)) return kExitProblem;
  Json stopped = Json::array();
  int code = kExitOk;
  for (const std::string& workflow : workflows) {
    if (options.all && ask(workflow, "ping").reach == Reach::kNotRunning) continue;
    if (int one = stop_one(workflow, stopped); one != kExitOk) code = one;
  }
  if (options.json) fmt::print("{}\n", Json{{"ok", code == kExitOk}, {"stopped", stopped}}.dump(2));
  if (!options.json) {
    for (const Json& entry : stopped)
      fmt::print("proxy `{}` stopped (pid {})\n", text(entry, "workflow"), number(entry, "pid"));
    if (options.all && stopped.empty() && code == kExitOk) fmt::print("no proxy runs\n");
  }
  return code;
}

int list(const ProxyVerb& options) {
  Json proxies = Json::array();
  std::vector<std::string> workflows;
  if (!every_workflow(&workflows)) return kExitProblem;
  const std::vector<Answer> answers = ask_all(workflows, "status");
  for (size_t i = 0; i < workflows.size(); ++i) {
    const std::string& workflow = workflows[i];
    const Answer& answer = answers[i];
    if (answer.reach == Reach::kNotRunning) continue;
    Json entry = {{"workflow", workflow}, {"pid", answer.pid}, {"answers", answer.ok()}};
    if (answer.ok()) {
      for (const char* key : {"version", "backend"}) entry[key] = text(answer.body, key);
      entry["uptime_s"] = number(answer.body, "uptime_s");
      entry["gpus"] = answer.body.value("gpus", Json::array()).size();
      entry["faults"] = answer.body.value("faults", Json::array());
      entry["functions"] = answer.body.value("functions", Json::array()).size();
    }
    proxies.push_back(std::move(entry));
  }
  if (options.json) {
    fmt::print("{}\n",
               Json{{"ok", true}, {"folder", runtime_dir_path()}, {"proxies", proxies}}.dump(2));
  } else if (options.names_only) {
    for (const Json& entry : proxies) fmt::print("{}\n", text(entry, "workflow"));
  } else if (proxies.empty()) {
    fmt::print("no proxy runs (looked in {})\n", runtime_dir_path());
  } else {
    Table table({"WORKFLOW", "PID", "VERSION", "BACKEND", "GPUS", "FUNCTIONS", "UP"}, "lrllrrr");
    for (const Json& entry : proxies) {
      table.add({text(entry, "workflow"), std::to_string(number(entry, "pid")),
                 text(entry, "version", "does not answer"),
                 entry.value("faults", Json::array()).empty() ? text(entry, "backend") : "faulted",
                 std::to_string(number(entry, "gpus")), std::to_string(number(entry, "functions")),
                 human_age(number(entry, "uptime_s"))});
    }
    fmt::print("{}", table.str());
  }
  return kExitOk;
}

}  // namespace

void add_proxy(Verb& root) {
  Verb parent = root.verb("proxy", "start, stop or list proxies");
  parent.needs_verb().footer(
      "Examples:\n  tubectl proxy start -w shop --gpus 0,1\n  tubectl proxy stop -w shop\n  "
      "tubectl proxy list --json");

  auto options = std::make_shared<ProxyVerb>();
  parent.verb("start", "start the proxy of a workflow in the background")
      .json(options->json)
      .workflow(options->proxy.workflow)
      .gpus(options->proxy.gpus, "the GPUs it owns, e.g. 0,1 (default: all)")
      .copy_policy(options->proxy.copy_policy, "")
      .memory("--memory", options->proxy.memory, true,
              "how much memory of each GPU all functions together may take, e.g. 20G, or one limit "
              "for each GPU, with commas between them (default: none)")
      .memory("--function-memory", options->proxy.function_memory, false,
              "how much memory of each GPU one function may take at most (default: none)")
      .number(
          "--hang-timeout", options->proxy.hang_timeout,
          "end a function that sends nothing for so many seconds while a stream of it waits for "
          "a value and keeps others waiting (0: never)")
      .number("--weight", options->proxy.weight,
              "its share of a GPU's time among all proxies that use it (default: 100)")
      .flag("--slices", options->proxy.slices,
            "split the GPUs at once for functions with --sm-percent, not when the first one comes")
      .text("--share-store", options->proxy.share_store, "PREFIXES",
            "objects of the store that your other workflows may have, by the beginnings of their "
            "names, with commas between them; all: every one (default: none)")
      .flag("--verify-shared", options->proxy.verify_shared,
            "find who writes to a sealed object of the store; slow")
      .choice(
          "--on-fault", options->proxy.on_fault, {"wait", "end"},
          "what becomes of a proxy's functions when a kernel ends the context: it waits until they "
          "have left (default), or ends them; then it starts anew")
      .backend(options->proxy.backend,
               "auto, driver or sim ($TUBE_BACKEND, else auto: sim only where no GPU is)")
      .footer(
          "Its log is WORKFLOW.log in the runtime folder. When one runs already, that is said and "
          "is no error,\nunless it has other GPUs or another backend than was asked for.\n\n"
          "Examples:\n  tubectl proxy start\n  tubectl proxy start -w shop --gpus 0,1\n  tubectl "
          "proxy start --backend sim")
      .action([options] { return start(*options); });

  options = std::make_shared<ProxyVerb>();
  parent.verb("stop", "end a proxy and wait until it is gone; its functions get an error")
      .json(options->json)
      .workflow(options->proxy.workflow)
      .flag("--all", options->all, "every proxy of this user")
      .footer(
          "Examples:\n  tubectl proxy stop\n  tubectl proxy stop -w shop\n  tubectl proxy stop "
          "--all")
      .action([options] { return stop(*options); });

  options = std::make_shared<ProxyVerb>();
  parent.verb("list", "the proxies of this user")
      .json(options->json)
      .flag("--names", options->names_only, "only the workflows' names, one a line")
      .footer("Examples:\n  tubectl proxy list\n  tubectl proxy list --json")
      .action([options] { return list(*options); });
}

}  // namespace tube::ctl

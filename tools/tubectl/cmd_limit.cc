// tubectl limit: how much GPU memory a workflow and its functions may take, shown and changed while
// they run.
#include <fmt/core.h>

#include <memory>

#include "base/byte_size.h"
#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

struct LimitOptions {
  std::string workflow, memory, each;
  size_t function = 0, gpu = 0;
  bool one_function = false, one_gpu = false;
  bool json = false;
};

// The command line has checked the text.
Json limit_json(const std::string& text) {
  const uint64_t bytes = *parse_byte_limit(text);
  return bytes == UINT64_MAX ? Json() : Json(bytes);
}

void print_row(Table& table, const std::string& whose, const Json& gpus) {
  for (const Json& gpu : gpus)
    table.add({whose, std::to_string(number(gpu, "gpu")), human_bytes(number(gpu, "held_bytes")),
               limit_text(gpu, "limit_bytes")});
}

void print(const LimitOptions& options, const Json& answer) {
  const Json memory = answer.value("memory", Json::object());
  Table table({"OF", "GPU", "HELD", "LIMIT"}, "lrrr");
  print_row(table, "workflow " + options.workflow, memory.value("gpus", Json::array()));
  if (const Json function = answer.value("function", Json()); function.is_object())
    print_row(table, fmt::format("{} (pid {})", text(function, "name"), number(function, "pid")),
              function.value("gpus", Json::array()));
  fmt::print("{}each function that starts now: {}\n", table.str(),
             limit_text(memory, "function_limit_bytes"));
}

int limit(const LimitOptions& options) {
  Json request = {{"verb", "limit"}};
  if (options.one_function) request["pid"] = options.function;
  if (options.one_gpu) request["gpu"] = options.gpu;
  if (!options.memory.empty()) request["memory_bytes"] = limit_json(options.memory);
  if (!options.each.empty()) request["each_bytes"] = limit_json(options.each);
  Answer answer = ask_with(options.workflow, request);
  if (!answer.ok()) return report_unusable(options.workflow, answer);
  if (options.json) fmt::print("{}\n", answer.body.dump(2));
  else print(options, answer.body);
  return kExitOk;
}

}  // namespace

void add_limit(Verb& root) {
  auto options = std::make_shared<LimitOptions>();
  Verb verb = root.verb("limit", "how much GPU memory functions may take: shown, or changed now");
  verb.workflow(options->workflow)
      .number("-f,--function", options->function,
              "process number of the function that --memory is for (default: all functions of the "
              "workflow together)")
      .memory("--memory", options->memory, false,
              "how much of each GPU may be taken from now on, e.g. 4G, or none")
      .number("--gpu", options->gpu, "the one GPU that --memory is for (default: each)")
      .memory("--each", options->each, false,
              "how much of each GPU a function may take that starts from now on, or none")
      .json(options->json)
      .footer(
          "Without --memory and --each it shows what is held and allowed. A limit below what is "
          "held "
          "takes nothing away: requests\n"
          "fail with CUDA_ERROR_OUT_OF_MEMORY until enough has been given back.\n\n"
          "Examples:\n  tubectl limit\n  tubectl limit --memory 20G\n  tubectl limit --function "
          "4711 "
          "--memory 4G\n  tubectl limit --function 4711 --memory none")
      .action([options, verb] {
        options->one_function = verb.given("--function");
        options->one_gpu = verb.given("--gpu");
        return limit(*options);
      });
}

}  // namespace tube::ctl

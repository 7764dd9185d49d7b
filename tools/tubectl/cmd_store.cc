// tubectl store: the named objects that the functions of a workflow share.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/layout.h"
#include "tools/tubectl/store_bytes.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

struct StoreOptions {
  std::string workflow, group, get;
  size_t every_s = 0;
  bool json = false;
};

Json of_group(const Json& answer, const std::string& group) {
  Json found = Json::array();
  for (const Json& object : answer.value("objects", Json::array()))
    if (group.empty() || text(object, "group") == group) found.push_back(object);
  return found;
}

std::string consumed_text(const Json& object) {
  const uint64_t consumers = number(object, "consumers");
  return consumers == 0 ? "-" : fmt::format("{}/{}", number(object, "consumed"), consumers);
}

// Where it is, and where else.
std::string places_text(const Json& object) {
  std::string places = text(object, "place");
  for (const Json& copy : object.value("copies", Json::array())) {
    const int device = copy.is_number_integer() ? copy.get<int>() : -1;
    places += device < 0 ? ", host" : fmt::format(", gpu {}", device);
  }
  return places;
}

std::string state_text(const Json& object) {
  const std::string by = text(object, "changed_by");
  return text(object, "state") + (by.empty() ? "" : ", changed: " + by);
}

std::string table(const Json& answer) {
  Table table({"NAME", "GROUP", "SIZE", "PLACE", "STATE", "HOLDERS", "CONSUMED", "AGE", "MOVES",
               "LAST MOVE"},
              "llrllrrrrl");
  for (const Json& object : answer["objects"]) {
    const std::string group = text(object, "group");
    table.add({text(object, "name"), group.empty() ? "-" : group,
               human_bytes(number(object, "bytes")), places_text(object), state_text(object),
               std::to_string(number(object, "holders")), consumed_text(object),
               human_age(number(object, "age_ns") / 1'000'000'000),
               std::to_string(number(object, "moves")),
               text(object, "why").empty() ? "-" : text(object, "why")});
  }
  const Json counts = answer.value("counts", Json::object());
  return table.str() +
         fmt::format(
             "{} objects, {} of GPU memory and {} of host memory; {} kept idle\n"
             "{} left a GPU ({}), {} came back before their turn ({}), {} were fetched\n",
             number(counts, "objects"), human_bytes(number(counts, "gpu_bytes")),
             human_bytes(number(counts, "host_bytes")), human_bytes(number(counts, "idle_bytes")),
             number(counts, "left"), human_bytes(number(counts, "left_bytes")),
             number(counts, "returned"), human_bytes(number(counts, "returned_bytes")),
             number(counts, "fetched"));
}

int get_object(const StoreOptions& options) {
  if (Answer answer = ask(options.workflow, "ping"); !answer.ok())
    return report_unusable(options.workflow, answer);
  const Status written =
      write_object(find_layout().hook_lib, options.workflow, options.get, STDOUT_FILENO);
  if (written.ok()) return kExitOk;
  fmt::print(stderr, "tubectl: {}\n", written.error().message);
  return kExitProblem;
}

int show_store(const StoreOptions& options) {
  while (true) {
    Answer answer = ask(options.workflow, "store");
    if (!answer.ok()) return report_unusable(options.workflow, answer);
    answer.body["objects"] = of_group(answer.body, options.group);
    answer.body["workflow"] = options.workflow;
    if (options.json) {
      fmt::print("{}\n", answer.body.dump(options.every_s == 0 ? 2 : -1));
    } else {
      if (options.every_s != 0) fmt::print("\033[H\033[J");
      fmt::print("{}", table(answer.body));
    }
    if (options.every_s == 0) return kExitOk;
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(options.every_s));
  }
}

}  // namespace

void add_store(Verb& root) {
  auto options = std::make_shared<StoreOptions>();
  root.verb("store", "the named objects that functions share, who holds them, how old they are")
      .workflow(options->workflow)
      .text("-g,--group", options->group, "NAME", "only objects of this group")
      .text("--get", options->get, "NAME",
            "write the bytes of this object to the standard output, and nothing else")
      .number("--watch", options->every_s, "again every N seconds, until it is interrupted")
      .json(options->json)
      .footer(
          "STATE: reserved (its maker writes it), sealed, or deleted (held all the same); changed: "
          "(with --verify-shared) who had it when it was written to behind its seal. HOLDERS "
          "counts "
          "claims.\nCONSUMED: gets that are over, of those expected. PLACE: where it is, "
          "and "
          "where copies are.\nLAST MOVE: why it left a GPU, or came back.\n\n"
          "Examples:\n  tubectl store\n  tubectl store -w shop --watch 1\n  tubectl store --json\n "
          " "
          "tubectl store --get frames/17 > frame")
      .action(
          [options] { return options->get.empty() ? show_store(*options) : get_object(*options); });
}

}  // namespace tube::ctl

// The client side of a proxy's control socket: one JSON object a line out, one back
// (docs/operations.md).
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace tube::ctl {

using Json = nlohmann::json;

enum class Reach {
  kAnswered,    // `body` holds the proxy's answer; {"ok":false} is an answer too
  kNotRunning,  // no socket, or nobody behind it
  kFailed,      // `error` says what is wrong: permission, path too long, no answer in time
};

// NOLINTNEXTLINE(bugprone-exception-escape): moving a Json is noexcept
struct Answer {
  Reach reach = Reach::kFailed;
  Json body;
  std::string error;  // one line for the user unless kAnswered
  pid_t pid = 0;      // the proxy's, from the kernel (SO_PEERCRED)

  bool ok() const {
    return reach == Reach::kAnswered && body.is_object() &&
           body.value("ok", Json(false)) == Json(true);
  }
};

// Sends {"verb": verb} to the proxy of `workflow` and waits at most ten seconds for its line; not
// at all when the proxy is stopped by a signal. Never throws.
Answer ask(const std::string& workflow, const std::string& verb);
// The same for a verb with more to say: `request` has it as "verb".
Answer ask_with(const std::string& workflow, const Json& request);
// The same of many proxies at once, each with three seconds of its own: one that hangs hides no
// other. The answers are in the order of `workflows`.
std::vector<Answer> ask_all(const std::vector<std::string>& workflows, const std::string& verb);

// Prints why there is no usable answer, in one line on stderr, and gives the verb's exit code.
int report_unusable(const std::string& workflow, const Answer& answer);

// The workflows that have a control socket in the runtime folder, sorted; their proxies may be
// dead. None when there is no runtime folder; an error when it is not this user's alone.
Result<std::vector<std::string>> known_workflows();

// Fields of an untyped answer, with a default when they are missing or of another type.
std::string text(const Json& object, const char* key, const std::string& otherwise = "");
uint64_t number(const Json& object, const char* key, uint64_t otherwise = 0);
// A limit of memory: 4.0 GiB, or - for null.
std::string limit_text(const Json& object, const char* key);
// The "functions" of an answer, or only those of that name.
Json functions_named(const Json& answer, const std::string& name);

}  // namespace tube::ctl

// The verbs of tubectl: one file each, one function each that adds the verb to the command line.
//
// A verb's function only describes its options and stores what shall be run in `Command`; main runs it after the whole
// command line was understood. Exit codes are the same everywhere and are part of the interface (tubectl(1)).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace tube::ctl {

enum ExitCode : int {
  kExitOk = 0,
  kExitProblem = 1,      // doctor found a problem; a request was refused
  kExitUsage = 2,        // the command line was not understood
  kExitNotRunning = 3,   // no proxy runs for that workflow
  kExitStartFailed = 4,  // the proxy could not be started
  kExitRunFailed = 125,  // run: something of Tube failed before the program started
  kExitCannotExec = 126, // run: the program was found but cannot be executed
  kExitNotFound = 127,   // run: the program was not found
};

struct Command {
  std::function<int()> run;          // set by the verb that the command line names
  std::vector<std::string> program;  // what stood after `--`: never looked at as options
};

void add_run(CLI::App& app, Command& command);
void add_proxy(CLI::App& app, Command& command);
void add_ps(CLI::App& app, Command& command);
void add_status(CLI::App& app, Command& command);
void add_stat(CLI::App& app, Command& command);
void add_doctor(CLI::App& app, Command& command);
void add_completion(CLI::App& app, Command& command);

// Options that several verbs share, with the same words everywhere.
void add_workflow_option(CLI::App& verb, std::string& workflow);
void add_json_flag(CLI::App& verb, bool& json);

}  // namespace tube::ctl

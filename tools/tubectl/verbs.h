// The verbs of tubectl: one file each, one function each that adds the verb to the command line.
//
// A verb's function only describes its options and stores what shall be run in `Command`; main runs
// it after the whole command line was understood. Exit codes are the same everywhere and are part
// of the interface (tubectl(1)).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tube::ctl {

enum ExitCode : int {
  kExitOk = 0,
  kExitProblem = 1,       // doctor found a problem; a request was refused
  kExitUsage = 2,         // the command line was not understood
  kExitNotRunning = 3,    // no proxy runs for that workflow
  kExitStartFailed = 4,   // the proxy could not be started
  kExitFault = 5,         // the proxy runs, but a GPU's context is dead
  kExitRunFailed = 125,   // run: something of Tube failed before the program started
  kExitCannotExec = 126,  // run: the program was found but cannot be executed
  kExitNotFound = 127,    // run: the program was not found
};

struct Command {
  std::function<int()> run;          // set by the verb that the command line names
  std::vector<std::string> program;  // what stood after `--`: never looked at as options
  bool divided = false;              // there was a `--`
};

// What a verb says of its command line. A thin front of CLI11, which only cli.cc includes: its
// templates cost seconds of compilation in each file. Copies name the same verb; the variables must
// outlive the parse.
class Verb {
 public:
  explicit Verb(CLI::App* app, Command* command) : app_(app), command_(command) {}

  Verb verb(const char* name, const char* help);  // a verb below this one
  Verb& needs_verb();                             // it is nothing without one
  Verb& footer(const char* text);
  Verb& text(const char* flags, std::string& value, const char* type, const char* help);
  Verb& number(const char* flags, size_t& value, const char* help);
  Verb& flag(const char* flags, bool& value, const char* help);
  Verb& choice(const char* flags, std::string& value, std::vector<std::string> words,
               const char* help);
  Verb& required(const char* flags);
  Verb& workflow(std::string& value);                   // -w, with the same words everywhere
  Verb& json(bool& value);                              // --json, likewise
  Verb& gpus(std::string& value, const char* help);     // --gpus, of numbers or UUIDs
  Verb& backend(std::string& value, const char* help);  // --backend, preset by $TUBE_BACKEND
  Verb& copy_policy(std::string& value, const char* help);
  // A limit of memory as base/byte_size.h reads it; `several`: one for each GPU is fine, too.
  Verb& memory(const char* flag, std::string& value, bool several, const char* help);
  Verb& takes_program();  // the first word that is no option begins a program's command line

  bool given(const char* flag) const;  // after the parse: the user wrote it
  std::vector<std::string> program()
      const;  // after the parse: see takes_program, or what stood after `--`
  // What to do when the command line names this verb.
  void action(std::function<int()> run);

 private:
  CLI::App* app_;
  Command* command_;
};

void add_run(Verb& root);
void add_profile(Verb& root);
void add_proxy(Verb& root);
void add_ping(Verb& root);
void add_ps(Verb& root);
void add_status(Verb& root);
void add_stat(Verb& root);
void add_copies(Verb& root);
void add_gpu(Verb& root);
void add_store(Verb& root);
void add_topo(Verb& root);
void add_limit(Verb& root);
void add_mem(Verb& root);
void add_doctor(Verb& root);
void add_placement(Verb& root);
void add_completion(Verb& root);

// Understands the command line: runs the verb it names and gives its exit code.
int parse_and_run(int argc, char** argv);

}  // namespace tube::ctl

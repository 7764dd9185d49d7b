// Which driver calls wait for a whole context, or hold everything that comes after them, while one
// of its streams waits for a value (docs/decisions/0009-context-gate.md). The answers are the
// driver's and the GPU's, not documented, and may differ on the next ones: this asks them again.
//
// A file has one scenario a line: words (words.cc), done one after the other. Between [ and ] a
// stream waits, and each step is measured (beside.h); its answer is printed behind it. What a step
// does depends on everything the process did before, so each scenario has a process of its own: a
// driver that was never started, a context that never launched.
//
//   [NAME=VALUE..] WORD.. [ WORD.. ]
//
// NAME=VALUE is an environment variable, N*WORD the step N times.
//
// A scenario that stands is ended by SIGALRM. Written for no particular driver: a word whose call
// it lacks ends only its own scenario.
#include <getopt.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/holds/beside.h"
#include "bench/holds/words.h"

namespace {

using holds::Answer;

struct Options {
  double patience_s = 0.1;
  unsigned limit_s = 10;
};

void say(const std::string& text) {
  fputs(text.c_str(), stdout);
  fflush(stdout);
}

// "200*stream": the step, and how often.
std::pair<std::string, size_t> split_repeats(const std::string& word) {
  const size_t star = word.find('*');
  if (star == std::string::npos) return {word, 1};
  const size_t count = strtoul(word.c_str(), nullptr, 10);
  if (count == 0) holds::give_up("N*WORD wants a number");
  return {word.substr(star + 1), count};
}

// The answer to a step done once; to one done often, which of them did not go on: "waits(36,122)".
std::string worded(const std::vector<Answer>& answers) {
  std::string text;
  for (const auto& [answer, name] :
       {std::pair{Answer::kWaits, "waits"}, std::pair{Answer::kHolds, "holds"}}) {
    std::string which;
    for (size_t i = 0; i < answers.size(); ++i)
      if (answers[i] == answer) which += (which.empty() ? "" : ",") + std::to_string(i + 1);
    if (which.empty()) continue;
    text += (text.empty() ? "" : "+") + std::string(name);
    if (answers.size() > 1) text += "(" + which + ")";
  }
  return text.empty() ? "ok" : text;
}

std::vector<std::string> split(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// The environment that a scenario begins with; returns how many words that were. The driver reads
// it when it starts.
size_t set_environment(const std::vector<std::string>& words) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // few streams share a queue then
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos) return i;
    setenv(words[i].substr(0, equals).c_str(), words[i].substr(equals + 1).c_str(), 1);
    say(words[i] + " ");
  }
  return words.size();
}

// In the scenario's process. Prints each word before it is done, so that a scenario that stands or
// fails shows where.
void run_scenario(const std::vector<std::string>& words, const Options& options) {
  const size_t first = set_environment(words);
  holds::Scene scene = holds::set_up(options.patience_s);
  holds::Beside beside{std::chrono::duration<double>(options.patience_s)};
  CU(cuCtxSynchronize());
  bool held = false;
  for (size_t i = first; i < words.size(); ++i) {
    say((i == first ? "" : " ") + words[i]);
    if (words[i] == "[" || words[i] == "]") {
      held = words[i] == "[";
      held ? beside.hold() : beside.release();
      continue;
    }
    const auto [word, count] = split_repeats(words[i]);
    const auto step = [&scene, &word = word] { holds::do_step(scene, word); };
    if (held && holds::stands(word)) {
      beside.let_stand(step);
      continue;
    }
    std::vector<Answer> answers;
    for (size_t n = 0; n < count; ++n) held ? answers.push_back(beside.ask(step)) : step();
    if (held) say("=" + worded(answers));
  }
}

// False when the scenario did not come to its end; why is printed behind it.
bool run_in_process(const std::string& line, const Options& options) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGALRM, SIG_DFL);
    alarm(options.limit_s);
    run_scenario(split(line), options);
    _Exit(0);  // not through the driver's own end: it may wait for what still stands
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    say("no process for it\n");
    return false;
  }
  const bool gave_up = WIFEXITED(status) && WEXITSTATUS(status) == 1;  // and said why
  const bool stood = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  say(status == 0 || gave_up ? "\n" : stood ? " (stuck)\n" : " (died)\n");
  return status == 0;
}

// Comments and empty lines are printed as they are.
bool run_all(std::istream& in, const Options& options) {
  bool all = true;
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') say(line + "\n");
    else all &= run_in_process(line, options);
  }
  return all;
}

int usage(FILE* out, int code) {
  fputs(
      "holds [--patience SECONDS] [--limit SECONDS] FILE    FILE: one scenario a line; -: from "
      "standard input\n"
      "  --patience  how long work may take before it is said to stand (0.1); a call has three "
      "times as long to return\n"
      "  --limit     how long a scenario may take (10)\n\n"
      "A line is [NAME=VALUE..] WORD.. [ WORD.. ], and between the brackets a stream waits. N*WORD "
      "does it N times. Words:\n",
      out);
  for (const holds::Word& word : holds::words())
    fprintf(out, "  %-28s %s\n", word.name, word.meaning);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const option names[] = {
      {"patience", 1, nullptr, 'p'}, {"limit", 1, nullptr, 'l'}, {"help", 0, nullptr, 'h'}, {}};
  Options options;
  for (int given; (given = getopt_long(argc, argv, "h", names, nullptr)) != -1;) {
    if (given == 'h') return usage(stdout, 0);
    if (given == 'p') options.patience_s = strtod(optarg, nullptr);
    if (given == 'l') options.limit_s = static_cast<unsigned>(strtoul(optarg, nullptr, 10));
    if (given == '?') return usage(stderr, 2);
  }
  if (optind + 1 != argc || options.patience_s <= 0 || options.limit_s == 0)
    return usage(stderr, 2);
  if (strcmp(argv[optind], "-") == 0) return run_all(std::cin, options) ? 0 : 1;
  std::ifstream file(argv[optind]);
  if (!file) {
    perror(argv[optind]);
    return 2;
  }
  return run_all(file, options) ? 0 : 1;
}

// Tube's own pieces: are they here, are they whole, do the running proxies fit them, and can the
// hook get under a program.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/driver_file.h"
#include "tools/tubectl/control_client.h"
#include "tools/tubectl/doctor.h"
#include "tools/tubectl/elf_file.h"

namespace tube::ctl {
namespace {

// A libcuda.so.1 of ours: right SONAME, the calls every program starts with, nothing exported but
// driver calls.
void check_driver_shape(Findings& findings, const char* subject, const std::string& path,
                        const char* variable) {
  if (path.empty()) {
    findings.push_back({Severity::kProblem, subject, "libcuda.so.1 was not found beside tubectl",
                        fmt::format("reinstall, or point at it with {}", variable)});
    return;
  }
  Result<ElfFile> elf = read_elf(path);
  if (!elf.ok()) {
    findings.push_back({Severity::kProblem, subject, elf.error().message, "reinstall"});
    return;
  }
  const auto& names = elf->exported;
  auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  bool whole = elf->soname == "libcuda.so.1" && has("cuInit") && has("cuGetProcAddress_v2") &&
               has("cuLaunchKernel");
  findings.push_back({whole ? Severity::kFine : Severity::kProblem, subject,
                      fmt::format("{}, {} driver symbols", path, names.size()),
                      whole ? "" : "it lacks the driver's SONAME or entry points: reinstall"});
}

}  // namespace

void check_install(Findings& findings, const Layout& layout) {
  check_driver_shape(findings, "hook", layout.hook_lib, "TUBE_HOOK_LIB");
  if (!layout.hook_lib.empty() &&
      access((folder_of(layout.hook_lib) + "/libcuda.so").c_str(), R_OK) != 0) {
    findings.push_back({Severity::kNote, "hook", "no libcuda.so link beside it",
                        "make one (ln -s libcuda.so.1 libcuda.so): some programs load that name"});
  }
  check_driver_shape(findings, "simulated GPU", layout.sim_lib, "TUBE_SIM_LIB");
  bool runs = !layout.tubed.empty() && access(layout.tubed.c_str(), X_OK) == 0;
  findings.push_back({runs ? Severity::kFine : Severity::kProblem, "proxy program",
                      runs ? layout.tubed : "tubed was not found beside tubectl",
                      runs ? "" : "reinstall, or point at it with TUBE_TUBED"});
}

void check_proxies(Findings& findings) {
  size_t before = findings.size();
  const Result<std::vector<std::string>> known = known_workflows();
  if (!known.ok()) return;  // check_runtime_dir() says why
  const std::vector<Answer> answers = ask_all(*known, "ping");
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::string& workflow = (*known)[i];
    const Answer& answer = answers[i];
    if (answer.reach == Reach::kNotRunning) {
      findings.push_back(
          {Severity::kNote, "proxy",
           fmt::format("`{}` has a socket but nobody answers there: it was killed", workflow),
           fmt::format("nothing to do; the next tubectl proxy start -w {} takes the socket over",
                       workflow)});
    } else if (!answer.ok()) {
      findings.push_back({Severity::kProblem, "proxy", answer.error,
                          fmt::format("tubectl proxy stop -w {}, or look into its log", workflow)});
    } else if (std::string version = text(answer.body, "version"); version != TUBE_VERSION) {
      findings.push_back(
          {Severity::kProblem, "proxy",
           fmt::format("`{}` (pid {}) is version {}, this is {}", workflow, answer.pid, version,
                       TUBE_VERSION),
           fmt::format("tubectl proxy stop -w {0}; tubectl proxy start -w {0}", workflow)});
    } else if (const Json faults = answer.body.value("faults", Json::array()); !faults.empty()) {
      for (const Json& fault : faults)
        findings.push_back(
            {Severity::kProblem, "proxy", text(fault, "text"),
             fmt::format(
                 "end the functions that are left: then it starts anew by itself; or tubectl "
                 "proxy stop -w {}",
                 workflow)});
    } else {
      findings.push_back(
          {Severity::kFine, "proxy",
           fmt::format("`{}` runs (pid {}), version {}", workflow, answer.pid, version), ""});
    }
  }
  if (findings.size() == before)
    findings.push_back({Severity::kFine, "proxy", "none runs; tubectl run starts one", ""});
}

void check_program(Findings& findings, const std::string& program) {
  size_t before = findings.size();
  struct stat info {};
  Result<ElfFile> elf = read_elf(program);
  if (stat(program.c_str(), &info) != 0) {
    findings.push_back({Severity::kProblem, "program",
                        fmt::format("{}: {}", program, strerror(errno)),
                        "give the path of the program's file"});
    return;
  }
  if (!elf.ok()) {
    findings.push_back({Severity::kNote, "program", elf.error().message,
                        "a script: check its interpreter instead"});
    return;
  }
  if (!elf->has_interpreter) {
    findings.push_back({Severity::kProblem, "program",
                        program + " is statically linked: nothing can be loaded under it",
                        "run the program that it starts, or link it dynamically"});
  }
  if ((info.st_mode & (S_ISUID | S_ISGID)) != 0) {
    findings.push_back({Severity::kProblem, "program",
                        program + " is setuid or setgid: the loader ignores LD_PRELOAD for it",
                        "run it without the bit"});
  }
  if (elf->cuda_runtime && search_driver().found.empty()) {
    findings.push_back({Severity::kProblem, "program",
                        program +
                            " uses the CUDA runtime, which starts with a genuine NVIDIA driver "
                            "alone, and none is here: it cannot run",
                        "run it on a machine with the driver; the simulated GPU is for programs of "
                        "the driver API"});
  }
  if (!elf->rpath.empty()) {
    findings.push_back(
        {Severity::kNote, "program",
         fmt::format("{} has DT_RPATH {}, which comes before LD_LIBRARY_PATH", program, elf->rpath),
         "start it with tubectl run, whose preload still wins; a library path alone would not"});
  }
  if (findings.size() == before)
    findings.push_back({Severity::kFine, "program", program + " can be run through Tube", ""});
}

}  // namespace tube::ctl

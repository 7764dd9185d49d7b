// Core dump settings: defaults, sizes, setting them for the process and for a context.
#include "tests/conformance/case.h"

namespace {

using Getter = CUresult (*)(CUcoredumpSettings, void*, size_t*);
using Setter = CUresult (*)(CUcoredumpSettings, void*, size_t*);

void show_bool(Getter get, CUcoredumpSettings attribute) {
  bool value = false;
  size_t size = sizeof value;
  const CUresult result = get(attribute, &value, &size);
  printf("attribute %d: %s, %d\n", static_cast<int>(attribute), code_name(result), result == CUDA_SUCCESS && value ? 1 : 0);
}

CUresult set_bool(Setter set, CUcoredumpSettings attribute, bool value) {
  size_t size = sizeof value;
  return set(attribute, &value, &size);
}

CUresult set_text(Setter set, CUcoredumpSettings attribute, std::string text) {
  size_t size = text.size() + 1;
  return set(attribute, text.data(), &size);
}

constexpr CUcoredumpSettings kBools[] = {CU_COREDUMP_ENABLE_ON_EXCEPTION, CU_COREDUMP_TRIGGER_HOST, CU_COREDUMP_LIGHTWEIGHT,
                                         CU_COREDUMP_ENABLE_USER_TRIGGER};

}  // namespace

CASE(defaults_of_the_process) {
  CU(cuInit(0));
  for (CUcoredumpSettings attribute : kBools) show_bool(cuCoredumpGetAttributeGlobal, attribute);
}

CASE(defaults_of_a_context) {
  Gpu gpu;
  for (CUcoredumpSettings attribute : kBools) show_bool(cuCoredumpGetAttribute, attribute);
}

CASE(default_flags) {
  Gpu gpu;
  int flags = -1;
  size_t size = sizeof flags;
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
  printf("%d, %zu bytes\n", flags, size);
  size = sizeof flags;
  SHOW(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
  printf("%d, %zu bytes\n", flags, size);
}

CASE(default_file) {
  Gpu gpu;
  char text[1024] = {};
  size_t size = sizeof text;
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_FILE, text, &size));
  printf("%s\n", strncmp(text, "core.cuda.", 10) == 0 ? "core.cuda. and more" : text);
}

CASE(default_pipe) {
  Gpu gpu;
  char text[1024] = {};
  size_t size = sizeof text;
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_PIPE, text, &size));
  printf("%s\n", strncmp(text, "corepipe.cuda.", 14) == 0 ? "corepipe.cuda. and more" : text);
}

CASE(sizes) {
  Gpu gpu;
  for (int attribute = 1; attribute < CU_COREDUMP_MAX; ++attribute) {
    size_t size = 0;
    const CUresult result = cuCoredumpGetAttributeGlobal(static_cast<CUcoredumpSettings>(attribute), nullptr, &size);
    printf("attribute %d: %s, %zu bytes\n", attribute, code_name(result), size);
  }
}

CASE(set_for_the_process) {
  CU(cuInit(0));
  SHOW(set_bool(cuCoredumpSetAttributeGlobal, CU_COREDUMP_LIGHTWEIGHT, true));
  show_bool(cuCoredumpGetAttributeGlobal, CU_COREDUMP_LIGHTWEIGHT);
  SHOW(set_bool(cuCoredumpSetAttributeGlobal, CU_COREDUMP_LIGHTWEIGHT, false));
  show_bool(cuCoredumpGetAttributeGlobal, CU_COREDUMP_LIGHTWEIGHT);
}

CASE(set_for_a_context) {
  Gpu gpu;
  SHOW(set_bool(cuCoredumpSetAttribute, CU_COREDUMP_TRIGGER_HOST, false));
  show_bool(cuCoredumpGetAttribute, CU_COREDUMP_TRIGGER_HOST);
  show_bool(cuCoredumpGetAttributeGlobal, CU_COREDUMP_TRIGGER_HOST);
}

CASE(set_the_file) {
  Gpu gpu;
  SHOW(set_text(cuCoredumpSetAttributeGlobal, CU_COREDUMP_FILE, "my.dump"));
  char text[1024] = {};
  size_t size = sizeof text;
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_FILE, text, &size));
  printf("%s\n", text);
}

CASE(set_a_file_name_that_is_too_long) {
  Gpu gpu;
  SHOW(set_text(cuCoredumpSetAttributeGlobal, CU_COREDUMP_FILE, std::string(2000, 'x')));
}

CASE(set_the_pipe_of_a_context) {
  Gpu gpu;
  SHOW(set_text(cuCoredumpSetAttribute, CU_COREDUMP_PIPE, "my.pipe"));
  SHOW(set_bool(cuCoredumpSetAttribute, CU_COREDUMP_ENABLE_USER_TRIGGER, true));
}

CASE(set_flags) {
  Gpu gpu;
  int flags = CU_COREDUMP_SKIP_GLOBAL_MEMORY | CU_COREDUMP_SKIP_ABORT;
  size_t size = sizeof flags;
  SHOW(cuCoredumpSetAttributeGlobal(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
  flags = 0;
  size = sizeof flags;
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
  printf("%d\n", flags);
}

CASE(bad_arguments) {
  Gpu gpu;
  bool value = false;
  size_t size = sizeof value;
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &value, nullptr));
  SHOW(cuCoredumpGetAttributeGlobal(static_cast<CUcoredumpSettings>(0), &value, &size));
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_MAX, &value, &size));
  SHOW(cuCoredumpSetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &value, nullptr));
  SHOW(cuCoredumpSetAttributeGlobal(static_cast<CUcoredumpSettings>(0), &value, &size));
  SHOW(cuCoredumpSetAttributeGlobal(CU_COREDUMP_MAX, &value, &size));
}

CASE(too_little_room) {
  Gpu gpu;
  char value = 0;
  size_t size = 0;
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &value, &size));
  size = 1;
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_GENERATION_FLAGS, &value, &size));
}

CASE(without_a_context) {
  CU(cuInit(0));
  bool value = false;
  size_t size = sizeof value;
  SHOW(cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &value, &size));
  SHOW(cuCoredumpSetAttribute(CU_COREDUMP_LIGHTWEIGHT, &value, &size));
}

CASE(before_init) {
  bool value = false;
  size_t size = sizeof value;
  SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &value, &size));
}

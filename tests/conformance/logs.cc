// The driver's error log: callbacks, iterators, dumps. What it says differs; how the calls behave
// does not.
#include "tests/conformance/case.h"

namespace {
void nothing(void*, CUlogLevel, char*, size_t) {}
std::string file_name() { return "/tmp/tube-logs-" + std::to_string(getpid()); }
}  // namespace

CASE(register_and_unregister) {
  CU(cuInit(0));
  CUlogsCallbackHandle handle = nullptr;
  SHOW(cuLogsRegisterCallback(nothing, nullptr, &handle));
  printf("%s\n", handle != nullptr ? "a handle" : "none");
  SHOW(cuLogsUnregisterCallback(handle));
}

CASE(register_without_a_place_for_the_handle) {
  CU(cuInit(0));
  SHOW(cuLogsRegisterCallback(nothing, nullptr, nullptr));
}

CASE(register_null) {
  CU(cuInit(0));
  CUlogsCallbackHandle handle = nullptr;
  SHOW(cuLogsRegisterCallback(nullptr, nullptr, &handle));
}

namespace {
struct Heard {
  int messages = 0;
  std::string last;
  int level = -1;
};
void hear(void* data, CUlogLevel level, char* message, size_t length) {
  auto* heard = static_cast<Heard*>(data);
  ++heard->messages;
  heard->last.assign(message, length);
  heard->level = level;
}
}  // namespace

CASE(what_a_callback_hears) {
  Gpu gpu;
  Heard heard;
  CUlogsCallbackHandle handle = nullptr;
  CU(cuLogsRegisterCallback(hear, &heard, &handle));
  SHOW(cuMemFree(0x1234));
  printf("%d messages, level %d: %s\n", heard.messages, heard.level, heard.last.c_str());
  CU(cuLogsUnregisterCallback(handle));
  SHOW(cuMemFree(0x1234));
  printf("%d messages\n", heard.messages);
}

CASE(what_a_dump_says) {
  Gpu gpu;
  CUlogIterator before = 0, after = 0;
  CU(cuLogsCurrent(&before, 0));
  SHOW(cuMemFree(0x1234));
  CU(cuLogsCurrent(&after, 0));
  printf("%u more\n", after - before);
  char buffer[4096];
  size_t size = sizeof buffer;
  SHOW(cuLogsDumpToMemory(&before, buffer, &size, 0));
  const char* text = strstr(buffer, "[CUDA]");
  printf("%s", text != nullptr ? text : "nothing\n");
  printf("%s\n", before == after ? "the iterator has come along" : "the iterator has stayed");
}

CASE(two_callbacks) {
  CU(cuInit(0));
  CUlogsCallbackHandle first = nullptr, second = nullptr;
  SHOW(cuLogsRegisterCallback(nothing, nullptr, &first));
  SHOW(cuLogsRegisterCallback(nothing, nullptr, &second));
  printf("%s\n", first != second ? "two handles" : "one handle");
  SHOW(cuLogsUnregisterCallback(first));
  SHOW(cuLogsUnregisterCallback(second));
}

CASE(current) {
  CU(cuInit(0));
  CUlogIterator iterator = 0;
  SHOW(cuLogsCurrent(&iterator, 0));
  SHOW(cuLogsCurrent(nullptr, 0));
  SHOW(cuLogsCurrent(&iterator, 1));
}

CASE(nothing_to_dump) {
  CU(cuInit(0));
  CUlogIterator iterator = 0;
  CU(cuLogsCurrent(&iterator, 0));
  char buffer[4096] = "before";
  size_t size = sizeof buffer;
  SHOW(cuLogsDumpToMemory(&iterator, buffer, &size, 0));
  printf("%zu bytes, `%s`\n", size, buffer);
}

CASE(dump_to_memory) {
  CU(cuInit(0));
  char buffer[32768];
  size_t size = sizeof buffer;
  SHOW(cuLogsDumpToMemory(nullptr, buffer, &size, 0));
  printf("%s\n", size < sizeof buffer && strlen(buffer) == size ? "text of that size" : "something else");
}

CASE(dump_to_memory_bad_arguments) {
  CU(cuInit(0));
  char buffer[64];
  size_t size = sizeof buffer;
  SHOW(cuLogsDumpToMemory(nullptr, nullptr, &size, 0));
  SHOW(cuLogsDumpToMemory(nullptr, buffer, nullptr, 0));
  SHOW(cuLogsDumpToMemory(nullptr, buffer, &size, 1));
  size = 0;
  SHOW(cuLogsDumpToMemory(nullptr, buffer, &size, 0));
}

CASE(dump_to_file) {
  CU(cuInit(0));
  CUlogIterator iterator = 0;
  CU(cuLogsCurrent(&iterator, 0));
  SHOW(cuLogsDumpToFile(&iterator, file_name().c_str(), 0));
  printf("%s\n", access(file_name().c_str(), F_OK) == 0 ? "a file" : "no file");
  unlink(file_name().c_str());
}

CASE(dump_to_file_bad_arguments) {
  CU(cuInit(0));
  SHOW(cuLogsDumpToFile(nullptr, nullptr, 0));
  SHOW(cuLogsDumpToFile(nullptr, "/no/such/folder/file", 0));
  SHOW(cuLogsDumpToFile(nullptr, file_name().c_str(), 1));
  unlink(file_name().c_str());
}

CASE(before_init) {
  CUlogIterator iterator = 0;
  SHOW(cuLogsCurrent(&iterator, 0));
  CUlogsCallbackHandle handle = nullptr;
  SHOW(cuLogsRegisterCallback(nothing, nullptr, &handle));
  char buffer[4096];
  size_t size = sizeof buffer;
  SHOW(cuLogsDumpToMemory(nullptr, buffer, &size, 0));
}

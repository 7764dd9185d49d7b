// Kernels that fault: which code each kind of fault has, when it shows, and that it stays. And what
// looks like a fault and is none.
#include "tests/conformance/case.h"

namespace {

struct Faults : Gpu {
  Module module{"faults.fatbin"};
  DeviceArray<uint32_t> data{std::vector<uint32_t>(1024, 5)};
  CUstream stream = nullptr;
  Faults() { CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)); }
  CUfunction operator()(const char* name) const { return module.function(name); }
  // The code at a stream, then at everything else.
  void show() const {
    SHOW(cuStreamSynchronize(stream));
    SHOW(cuStreamQuery(stream));
    SHOW(cuCtxSynchronize());
    CUdeviceptr memory = 0;
    SHOW(cuMemAlloc(&memory, 4096));
    fflush(stdout);
    _exit(0);
  }
};

}  // namespace

FAULTING_CASE(misaligned_read) {
  Faults f;
  SHOW(try_launch(f("read_word"), {1}, {1}, 0, f.stream, f.data.pointer, 2ll, f.data.pointer));
  f.show();
}
FAULTING_CASE(misaligned_write) {
  Faults f;
  SHOW(try_launch(f("write_word"), {1}, {1}, 0, f.stream, f.data.pointer, 1ll, 3u));
  f.show();
}
FAULTING_CASE(misaligned_atomic) {
  Faults f;
  SHOW(try_launch(f("add_word"), {1}, {1}, 0, f.stream, f.data.pointer, 2ll, 3u));
  f.show();
}
FAULTING_CASE(read_of_nothing) {
  Faults f;
  SHOW(try_launch(f("read_word"), {1}, {1}, 0, f.stream, CUdeviceptr{0}, 64ll, f.data.pointer));
  f.show();
}
FAULTING_CASE(atomic_on_nothing) {
  Faults f;
  SHOW(try_launch(f("add_word"), {1}, {1}, 0, f.stream, CUdeviceptr{0}, 1ll << 40, 3u));
  f.show();
}
FAULTING_CASE(write_beyond_shared_memory) {
  Faults f;
  SHOW(try_launch(f("write_shared"), {1}, {1}, 0, f.stream, 1ll << 20, 3u, f.data.pointer));
  f.show();
}
FAULTING_CASE(write_beyond_local_memory) {
  Faults f;
  SHOW(try_launch(f("write_local"), {1}, {1}, 0, f.stream, 1ll << 22, 3u, f.data.pointer));
  f.show();
}
FAULTING_CASE(recursion_without_an_end) {
  Faults f;
  SHOW(try_launch(f("recurse"), {1}, {1}, 0, f.stream, 1u << 20, f.data.pointer));
  f.show();
}

// Errors of a launch or a call leave the context as it was.
CASE(refused_launches_are_no_faults) {
  Faults f;
  SHOW(try_launch(f("read_word"), {1}, {4096}, 0, f.stream, f.data.pointer, 0ll, f.data.pointer));
  SHOW(try_launch(f("read_word"), {1}, {1}, 1u << 20, f.stream, f.data.pointer, 0ll, f.data.pointer));
  SHOW(try_launch(f("read_word"), {0}, {1}, 0, f.stream, f.data.pointer, 0ll, f.data.pointer));
  SHOW(cuStreamWaitValue32(f.stream, f.data.pointer + 2, 1, CU_STREAM_WAIT_VALUE_GEQ));
  SHOW(cuStreamWriteValue32(f.stream, 0, 1, 0));
  SHOW(try_launch(f("read_word"), {1}, {1}, 0, f.stream, f.data.pointer, 4ll, f.data.pointer));
  SHOW(cuStreamSynchronize(f.stream));
  printf("%u\n", f.data.read()[0]);
}
CASE(recursion_that_fits) {
  Faults f;
  CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 64 << 10));
  SHOW(try_launch(f("recurse"), {1}, {1}, 0, f.stream, 20u, f.data.pointer));
  SHOW(cuStreamSynchronize(f.stream));
  printf("%u\n", f.data.read()[0]);
}
// What a kernel before the faulting one wrote can be asked for no more; the other functions of a
// program do not know it.
FAULTING_CASE(work_behind_a_fault_is_not_done) {
  Faults f;
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, 64, 0));
  auto* word = static_cast<volatile uint32_t*>(pinned);
  *word = 1;
  SHOW(try_launch(f("write_word"), {1}, {1}, 0, f.stream, CUdeviceptr{0}, 0ll, 3u));
  (void)cuMemcpyDtoHAsync(pinned, f.data.pointer, 4, f.stream);
  SHOW(cuStreamSynchronize(f.stream));
  printf("%u\n", *word);
  fflush(stdout);
  _exit(0);
}

// Kernels that print, assert and trap.
#undef NDEBUG
#include <cassert>
#include <cstdio>

extern "C" __global__ void say(int number) {
  if (threadIdx.x == 0) printf("kernel says %d\n", number);
}
// Every thread of one warp, in lane order.
extern "C" __global__ void say_lanes(int number) { printf("%d: lane %d of block %d\n", number, (int)threadIdx.x, (int)blockIdx.x); }
extern "C" __global__ void say_many(int first, int count) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < count; ++i) printf("line %07d of many, with some text behind it to fill it up\n", first + i);
}
extern "C" __global__ void say_formats(double value, long long large, const char* none) {
  if (threadIdx.x != 0) return;
  printf("[%5d] [%-5d] [%05d] [%+d] [%x] [%X] [%#o] [%u]\n", 42, 42, 42, 42, 255u, 255u, 8u, 4000000000u);
  printf("[%lld] [%llx] [%ld]\n", large, (unsigned long long)large, (long)large);
  printf("[%f] [%.2f] [%10.3f] [%-10.1f] [%e] [%g]\n", value, value, value, value, value, value);
  printf("[%c] [%s] [%10s] [%-6s] [%%]\n", 'x', "text", "right", "left");
  printf("no newline, ");
  printf("then one\n");
}
extern "C" __global__ void say_result(int* out, int number) {
  if (threadIdx.x != 0) return;
  out[0] = printf("nothing to convert\n");
  out[1] = printf("%d %d\n", number, number + 1);
  out[2] = printf("");
}
extern "C" __global__ void stay_silent(int* out, int number) {
  if (threadIdx.x == 0) *out = number;
}
extern "C" __global__ void must_be_positive(int value) { assert(value > 0); }
extern "C" __global__ void say_then_assert(int value) {
  printf("before the assertion: %d\n", value);
  assert(value > 0);
  printf("after the assertion: %d\n", value);
}
extern "C" __global__ void trap_when(int value) {
  if (value != 0) asm("trap;");
}
extern "C" __global__ void say_then_trap(int value) {
  printf("before the trap\n");
  if (value != 0) asm("trap;");
}

#include "nvml/stub_entry.h"

#include "nvml/nvml_abi.h"
#include "nvml/real_nvml.h"

// The number of the entry lies on the stack above the return address of its caller. Everything that
// may hold an argument is kept: six integer and eight vector registers, and rax for variable
// arguments.
asm(".text\n"
    ".globl tube_nvml_resolve\n"
    ".hidden tube_nvml_resolve\n"
    ".type tube_nvml_resolve, @function\n"
    "tube_nvml_resolve:\n"
    "  pushq %rax\n  pushq %rdi\n  pushq %rsi\n  pushq %rdx\n  pushq %rcx\n  pushq %r8\n  pushq "
    "%r9\n"
    "  movq 56(%rsp), %rdi\n"
    "  subq $136, %rsp\n"
    "  movups %xmm0, (%rsp)\n  movups %xmm1, 16(%rsp)\n  movups %xmm2, 32(%rsp)\n"
    "  movups %xmm3, 48(%rsp)\n  movups %xmm4, 64(%rsp)\n  movups %xmm5, 80(%rsp)\n"
    "  movups %xmm6, 96(%rsp)\n  movups %xmm7, 112(%rsp)\n"
    "  call tube_nvml_find\n"
    "  movq %rax, %r11\n"
    "  movups (%rsp), %xmm0\n  movups 16(%rsp), %xmm1\n  movups 32(%rsp), %xmm2\n"
    "  movups 48(%rsp), %xmm3\n  movups 64(%rsp), %xmm4\n  movups 80(%rsp), %xmm5\n"
    "  movups 96(%rsp), %xmm6\n  movups 112(%rsp), %xmm7\n"
    "  addq $136, %rsp\n"
    "  popq %r9\n  popq %r8\n  popq %rcx\n  popq %rdx\n  popq %rsi\n  popq %rdi\n  popq %rax\n"
    "  addq $8, %rsp\n"
    "  jmp *%r11\n"
    ".size tube_nvml_resolve, . - tube_nvml_resolve\n");

namespace {

// What a program gets from a name that the real library lacks, or when there is no such library.
nvmlReturn_t no_function() { return NVML_ERROR_FUNCTION_NOT_FOUND; }
nvmlReturn_t no_library() { return NVML_ERROR_LIBRARY_NOT_FOUND; }

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* tube_nvml_find(uint64_t index) {
  using namespace tube::nvml;
  void* found = real_function(kForwarded[index]);
  if (found == nullptr) found = reinterpret_cast<void*>(has_real() ? no_function : no_library);
  __atomic_store_n(&tube_nvml_slots[index], found, __ATOMIC_RELEASE);
  return found;
}

// Whether a program will want the CUDA runtime, and with it the real driver's cuInit: decided when
// the program is loaded.
//
// A second driver that starts beside a program costs it a core for 100 ms and its exit a wait, and
// its thread looks at the environment while the program may be changing it. So only those get one
// of whom it is plain: Python, whose imports are long, and programs that hold code compiled by
// nvcc, or came with a library that does (a section .nv_fatbin: every user of the runtime has one,
// and so has each of NVIDIA's libraries). Compilers, shells and what else a function starts do not.
// Reads the section names of each loaded library, some 20 us each. Any thread.
#pragma once

namespace tube::hook {

// `program_name`: of the program's file, without its folder.
bool wants_the_runtime(const char* program_name);

}  // namespace tube::hook

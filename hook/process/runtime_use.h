// Whether a program will want the CUDA runtime, and with it the real driver's cuInit: decided when
// the program is loaded.
//
// A program written against the driver API alone never asks for the validity check, and a second
// driver starting beside it costs it a core for 100 ms and its exit a wait. Such a program names
// libcuda.so.1 among what its own file needs, and neither it nor a library that came with it holds
// code that nvcc compiled (a section .nv_fatbin: every user of the runtime has one, and so has each
// of NVIDIA's libraries). Everything else is taken for a user of the runtime: interpreters, and
// programs that load libraries later. Reads the section names of each loaded library, some 20 us
// each. Any thread.
#pragma once

namespace tube::hook {

bool driver_api_only();

}  // namespace tube::hook

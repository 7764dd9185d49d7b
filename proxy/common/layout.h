// Where the proxy's own mappings lie: out of the way of what functions register.
//
// cuMemHostRegister wants the program's pages at the same address here. Ordinary processes have
// their libraries, stacks and arenas at the top of the address space, at random within one TiB, and
// so would the proxy, whose threads' arenas take a GiB or two: one registration in 600 found its
// address taken (3,800 of the conformance suite). Linux's older layout, which fills the space from
// a third of it upwards, is free in every ordinary process.
#pragma once

namespace tube::proxy {

// Executes the process again with that layout and one more argument, --moved; returns where the
// layout is there already or cannot be had (seccomp). Before any thread; not with --moved.
void move_out_of_the_way(int argc, char** argv);

}  // namespace tube::proxy

// What runs the deferred setup of a context (deferred_setup.h).
extern "C" __global__ void tube_empty() {}

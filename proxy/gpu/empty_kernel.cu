// What settles a context (settled_contexts.h).
extern "C" __global__ void tube_empty() {}

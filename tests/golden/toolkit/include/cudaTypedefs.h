// clang-format off
// Versions of the golden toolkit's functions.
typedef CUresult (CUDAAPI *PFN_cuMemFree_v3020)(CUdeviceptr dptr);
typedef CUresult (CUDAAPI *PFN_cuMemFree_v2000)(CUdeviceptr_v1 dptr);
typedef CUresult (CUDAAPI *PFN_cuMemset_v3020)(CUdeviceptr dst, unsigned char value, size_t bytes);
typedef CUresult (CUDAAPI *PFN_cuMemset_v7000_ptds)(CUdeviceptr dst, unsigned char value, size_t bytes);
typedef CUresult (CUDAAPI *PFN_cuGraphCreate_v10000)(CUgraph *phGraph, unsigned int flags);
typedef CUresult (CUDAAPI *PFN_cuGraphDestroy_v10000)(CUgraph hGraph);
typedef CUresult (CUDAAPI *PFN_cuGraphAddNode_v12020)(CUgraphNode *phNode);
typedef CUresult (CUDAAPI *PFN_cuGraphGetNodes_v10000)(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes);
typedef CUresult (CUDAAPI *PFN_cuGraphLaunch_v10000)(CUgraphExec hGraph, CUstream hStream);
typedef CUresult (CUDAAPI *PFN_cuGraphLaunch_v10000_ptsz)(CUgraphExec hGraph, CUstream hStream);
typedef CUresult (CUDAAPI *PFN_cuModuleFind_v12000)(const char *name);

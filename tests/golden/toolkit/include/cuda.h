// clang-format off
// A toolkit of eight functions, with every trick of the real header that the generator must see
// through.
#ifndef golden_cuda_h
#define golden_cuda_h
#define CUDAAPI
#if defined(__CUDA_API_VERSION_INTERNAL) || defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    #define __CUDA_API_PTDS(api) api ## _ptds
    #define __CUDA_API_PTSZ(api) api ## _ptsz
#else
    #define __CUDA_API_PTDS(api) api
    #define __CUDA_API_PTSZ(api) api
#endif
#define cuMemFree    cuMemFree_v2
#define cuGraphLaunch   __CUDA_API_PTSZ(cuGraphLaunch)
#define cuMemset     __CUDA_API_PTDS(cuMemset)
#define CUDA_VERSION 13000
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1;
typedef struct CUstream_st *CUstream;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef enum cudaError_enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 } CUresult;
typedef enum CUkind_enum { CU_KIND_A = 0 } CUkind;
typedef struct CUshape_st { unsigned int a, b; } CUshape;
CUresult CUDAAPI cuMemFree(CUdeviceptr dptr);  /* renamed by macro: declares cuMemFree_v2 */
CUresult CUDAAPI cuMemset(CUdeviceptr dst, unsigned char value, size_t bytes);
CUresult CUDAAPI cuGraphCreate(CUgraph *phGraph, unsigned int flags);
CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph);
CUresult CUDAAPI cuGraphAddNode(CUgraphNode *phNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                size_t numDependencies, const CUshape *shape);
CUresult CUDAAPI cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes);
CUresult CUDAAPI cuGraphLaunch(CUgraphExec hGraph, CUstream hStream);
CUresult CUDAAPI cuModuleFind(const char *name, CUkind kind, CUdeviceptr *dptr, size_t *bytes);
#if defined(__CUDA_API_VERSION_INTERNAL)
    #undef cuMemFree
    #undef cuGraphLaunch
    #undef cuMemset
    CUresult CUDAAPI cuMemFree(CUdeviceptr_v1 dptr);
    CUresult CUDAAPI cuGraphLaunch(CUgraphExec hGraph, CUstream hStream);
    CUresult CUDAAPI cuMemset(CUdeviceptr dst, unsigned char value, size_t bytes);
#endif
#endif

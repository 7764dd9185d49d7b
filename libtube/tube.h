/* Tube's store: named, immutable objects that all functions of a workflow share, without a copy.
 *
 * A function that runs through Tube puts an object under a name, in GPU memory or in pinned host
 * memory; any other function of the workflow gets it, at the same address and without a copy. A
 * program without a proxy (nothing of Tube is preloaded) has a store of its own in host memory, so
 * that functions run anywhere.
 *
 *     tube_spec spec = {.name = "frames/17", .bytes = n, .place = TUBE_GPU};
 *     tube_object out;
 *     tube_reserve(&spec, &out);             // memory to write to
 *     ... kernels on `stream` write out.data ...
 *     tube_seal(&out, stream);               // complete when the stream gets here
 *
 *     tube_object in;
 *     tube_wait("frames/17", TUBE_GPU, stream, 1000, &in);
 *     ... kernels on `stream` read in.data ...
 *     tube_release(&in, stream);             // read when the stream gets here
 *     tube_delete("frames/17");
 *
 * Rules. An object is written between reserve and seal, by its maker alone; from then on it is
 * immutable by agreement: nothing keeps a kernel of the same workflow from writing to it. A name is
 * free again when its object was deleted; whoever has the object keeps its bytes until it releases
 * them. What a process holds is released when it ends, and what it reserved and did not seal is
 * gone then.
 *
 * Other workflows. "//WORKFLOW/NAME" is the object NAME of another workflow of the same user, if
 * that one shares it (`tubed --share-store`). It is got and released like any other; who gets it
 * cannot delete it.
 *
 * Streams. A `tube_stream` is a CUstream or cudaStream_t, NULL for the default stream, or TUBE_NOW:
 * the host has done what is to be done, there is nothing to wait for. Of a release NULL is the
 * default stream of the context that was current at this get or reserve, and where another one is
 * current by now, that one's, too; of a seal it is the current one's, in a thread without a context
 * that of the reserve. What returns before the GPU has done it (kernels, cuMemset, copies within a
 * GPU, everything with Async) the caller has waited for. Streams that capture are refused.
 *
 * Every function may be called from any thread. Each answers TUBE_OK or another tube_result, and
 * then tube_error() has a sentence that says what happened and what to do. Names are at most 95
 * bytes, groups 63, shapes have at most 8 dimensions. */
#ifndef TUBE_H_
#define TUBE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUBE_API __attribute__((visibility("default")))
#define TUBE_NAME_BYTES 96 /* with the NUL */
#define TUBE_GROUP_BYTES 64
#define TUBE_DIMS 8

typedef enum tube_result {
  TUBE_OK = 0,
  TUBE_EXISTS = 1,    /* the name is taken */
  TUBE_NOT_FOUND = 2, /* no sealed object has that name; of tube_wait: not in that time */
  TUBE_TOO_MANY = 3,  /* objects, of this process or in all */
  TUBE_NO_MEMORY = 4,
  TUBE_INVALID = 5, /* the arguments make no sense */
  TUBE_NO_GPU = 6,  /* GPU memory without a proxy, or without a current context */
  TUBE_GONE = 7,    /* the proxy has ended */
  TUBE_FAILED = 8   /* a CUDA error */
} tube_result;

typedef enum tube_place {
  TUBE_HOST = 0, /* pinned host memory, at one address in all functions and for the GPU */
  TUBE_GPU = 1,
  TUBE_ANY = 2 /* where the object is; of a new one: the GPU if there is one, else the host */
} tube_place;

typedef void* tube_stream;
#define TUBE_NOW ((tube_stream)(intptr_t)-1)
#define TUBE_FOREVER (~(uint64_t)0)

/* What is to be made. Zero what you do not care for. */
typedef struct tube_spec {
  const char* name;
  const char* group; /* objects of one group can be deleted together */
  uint64_t bytes;
  tube_place place;
  int32_t device;     /* CUDA's ordinal of the GPU plus 1; 0: the current one */
  uint32_t dtype;     /* DLPack's: code | bits << 8 | lanes << 16; for consumers to read */
  uint32_t ndim;      /* at most TUBE_DIMS */
  uint32_t consumers; /* deleted when so many gets were released; 0: never by that */
  uint64_t ttl_ms;    /* deleted after that time; 0: never by that */
  int64_t shape[TUBE_DIMS];
  int64_t strides[TUBE_DIMS]; /* in elements */
} tube_spec;

/* An object that this process holds, or looks at. Its maker may write to `data` until it seals. */
typedef struct tube_object {
  void* data; /* of the place */
  uint64_t bytes;
  tube_place place;
  int32_t device; /* -1: host memory */
  uint32_t dtype;
  uint32_t ndim;
  int64_t shape[TUBE_DIMS];
  int64_t strides[TUBE_DIMS];
  char name[TUBE_NAME_BYTES];
  char group[TUBE_GROUP_BYTES];
  uint64_t age_ns;
  uint64_t id[2]; /* the library's own */
  uint32_t sealed;
  uint32_t reserved;
} tube_object;

/* 1: the workflow's store; 0: this process's own, there is no proxy. */
TUBE_API int tube_connected(void);
/* Of the last call of this thread that failed. Valid until its next call. */
TUBE_API const char* tube_error(void);

/* A name that no other object of the workflow ever had. `bytes`: at least TUBE_NAME_BYTES. */
TUBE_API int tube_unique_id(char* name, size_t bytes);

/* ---- making ---- */

/* Memory for a new object. A round trip to the proxy. The object is nobody else's yet. */
TUBE_API int tube_reserve(const tube_spec* spec, tube_object* object);
/* Whoever gets the object finds in it what was written up to here in the order of `stream`. The
 * object is no longer the caller's, get it to read it. Does not wait. */
TUBE_API int tube_seal(const tube_object* object, tube_stream stream);
/* Reserve, copy `data`, seal, in the order of `stream`. The bytes of `data` may be in GPU memory,
 * pinned or pageable; in pinned memory they must stay as they are until the stream gets there. With
 * TUBE_NOW they are read when the call returns. */
TUBE_API int tube_put(const tube_spec* spec, const void* data, tube_stream stream);

/* ---- taking ---- */

/* The object, at once or not at all. What comes later on `stream` comes behind its bytes; with
 * TUBE_NOW, and for objects in host memory, they are there when the call returns. `place` other
 * than the object's: a copy there, which is made once. */
TUBE_API int tube_get(const char* name, tube_place place, tube_stream stream, tube_object* object);
/* The same, and waits for an object that is not there. TUBE_FOREVER is possible. */
TUBE_API int tube_wait(const char* name, tube_place place, tube_stream stream, uint64_t timeout_ms,
                       tube_object* object);
/* What there is to know of it; the caller does not get it, and must not use its memory. */
TUBE_API int tube_peek(const char* name, tube_object* object);
/* The caller needs it no more, from where `stream` is on. One release for each get. Of an object
 * that the caller has reserved and not sealed: it is given up. */
TUBE_API int tube_release(const tube_object* object, tube_stream stream);

/* The same for owners that cannot be refused, as destructors. Where `stream` captures, or would
 * break a capture, and in host functions (cuLaunchHostFunc) it is made up for by a later call of
 * the library, in any thread. Where there is no such stream any more this waits for what the
 * program has given the object's GPU to do in any context, of host memory all GPUs. So does an
 * object that is not sealed and given up with a default stream or TUBE_NOW: what writes to it may
 * be on any. */
TUBE_API void tube_drop(const tube_object* object, tube_stream stream);

/* ---- for programs that know nothing of Tube ---- */

/* The memory behind an object that this process holds (tube_get), as a descriptor that is the
 * caller's to close or to hand to another process. GPU memory: for cuMemImportFromShareableHandle
 * (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), cuMemAddressReserve, cuMemMap of all `size` bytes and
 * cuMemSetAccess, in any process that has the GPU of `object->device`; the object begins at
 * `offset`. Host memory: for mmap of object->bytes bytes at `offset`. Hold the object until the
 * other program has done: the descriptor keeps the memory, but not what is in it. Other objects may
 * lie in the same memory. A round trip. */
TUBE_API int tube_export_fd(const tube_object* object, int* fd, uint64_t* size, uint64_t* offset);

/* ---- ending ---- */

/* The name is free at once, the memory when nobody has the object any more. */
TUBE_API int tube_delete(const char* name);
TUBE_API int tube_delete_group(const char* group, uint32_t* count);
/* Calls visit(data, object) with each object until it answers 0. */
TUBE_API int tube_list(int (*visit)(void* data, const tube_object* object), void* data);

/* ---- who comes next ---- */

/* The names of objects in the order in which they will be taken, by whoever runs the functions; it
 * replaces what was told before. Objects that are not there yet may be named. Under memory pressure
 * the last of them leave the GPU first, and come back before their turn. Names behind the first
 * 4,096, or behind 48 KiB of them with their NULs, have no turn. A round trip. */
TUBE_API int tube_queue(const char* const* names, size_t count);

/* ---- FaaSTube's names ---- */

/* unique_id(): tube_unique_id. store(): an object of `bytes` bytes at `data` under that name, on
 * the GPU if there is one. fetch(): the object, and waits for it. */
TUBE_API int tube_store(const char* name, const void* data, uint64_t bytes, tube_stream stream);
TUBE_API int tube_fetch(const char* name, tube_stream stream, tube_object* object);

#ifdef __cplusplus
}
#endif

#endif

"""One process on two GPUs: copies between them in every form, peer access and its codes, a kernel
on one GPU that reads and writes the other's memory, streams and events of both, and what PyTorch
makes of it.

Prints codes, values and hashes. Exit status: 0, or 77.
"""
import ctypes
import hashlib
import sys

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch")
    sys.exit(77)

# out[i] = in[i] + 1 for i < n
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry increment(.param .u64 out, .param .u64 in, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra DONE;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd1, %rd1, %rd3;
  add.s64 %rd2, %rd2, %rd3;
  ld.global.u32 %r5, [%rd2];
  add.u32 %r5, %r5, 1;
  st.global.u32 [%rd1], %r5;
DONE:
  ret;
}
\0"""


def digest(tensor):
    data = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(data).hexdigest()[:16]


class Driver:
    """The driver API by its names; a call that must work is checked, show() prints its code."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise SystemExit(f"{name}: {code}")

    def show(self, name, *arguments):
        print(f"{name} -> {getattr(self.library, name)(*arguments)}")


def contexts(cuda):
    made = []
    cuda("cuInit", 0)
    for gpu in range(2):
        context = ctypes.c_void_p()
        cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), gpu)
        made.append(context)
    return made


def allocate(cuda, context, size):
    pointer = ctypes.c_uint64()
    cuda("cuCtxSetCurrent", context)
    cuda("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer


def words(cuda, pointer, count):
    out = (ctypes.c_uint32 * count)()
    cuda("cuMemcpyDtoH_v2", out, pointer, ctypes.c_size_t(4 * count))
    return list(out)


def peers(cuda, context):
    able = ctypes.c_int()
    cuda.show("cuDeviceCanAccessPeer", ctypes.byref(able), 0, 1)
    print(f"peers {able.value}")
    for attribute in (2, 3, 4):
        value = ctypes.c_int(-1)
        cuda.show("cuDeviceGetP2PAttribute", ctypes.byref(value), attribute, 0, 1)
        print(f"attribute {attribute}: {value.value}")
    cuda("cuCtxSetCurrent", context[0])
    cuda.show("cuCtxDisablePeerAccess", context[1])
    cuda.show("cuCtxEnablePeerAccess", context[0], 0)
    cuda.show("cuCtxEnablePeerAccess", context[1], 1)
    cuda.show("cuCtxEnablePeerAccess", context[1], 0)
    cuda.show("cuCtxEnablePeerAccess", context[1], 0)
    cuda.show("cuCtxEnablePeerAccess", None, 0)
    return able.value


def peer_kernel(cuda, context):
    """On GPU 0: reads its own memory, writes GPU 1's, then the other way round."""
    count = 1000
    own, other = allocate(cuda, context[0], 4 * count), allocate(cuda, context[1], 4 * count)
    cuda("cuMemsetD32_v2", other, 7, ctypes.c_size_t(count))
    cuda("cuCtxSynchronize")
    cuda("cuCtxSetCurrent", context[0])
    cuda("cuMemsetD32_v2", own, 41, ctypes.c_size_t(count))
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    cuda("cuModuleLoadData", ctypes.byref(module), PTX)
    cuda("cuModuleGetFunction", ctypes.byref(kernel), module, b"increment")
    for out, source in ((other, own), (own, other), (other, own)):
        arguments = [out, source, ctypes.c_uint32(count)]
        pointers = (ctypes.c_void_p *
                    3)(*[ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments])
        cuda("cuLaunchKernel", kernel, 4, 1, 1, 256, 1, 1, 0, None, pointers, None)
        cuda("cuCtxSynchronize")
        print(f"kernel: own {words(cuda, own, count)[999]}, other's {words(cuda, other, count)[0]}")
    cuda.show("cuCtxDisablePeerAccess", context[1])
    cuda.show("cuCtxDisablePeerAccess", context[1])


def peer_copies(cuda, context):
    size = 1 << 20
    first, second = allocate(cuda, context[0], size), allocate(cuda, context[1], size)
    cuda("cuMemsetD32_v2", second, 5, ctypes.c_size_t(size // 4))
    cuda("cuCtxSynchronize")
    cuda.show("cuMemcpyPeer", first, context[0], second, context[1], ctypes.c_size_t(size))
    cuda("cuCtxSynchronize")
    print(f"copied {words(cuda, first, 4)}")
    cuda("cuMemsetD32_v2", second, 6, ctypes.c_size_t(size // 4))
    cuda.show("cuMemcpyPeerAsync", first, context[0], second, context[1], ctypes.c_size_t(size),
              None)
    cuda("cuCtxSynchronize")
    print(f"copied {words(cuda, first, 4)}")
    cuda.show("cuMemcpyDtoD_v2", second, first, ctypes.c_size_t(size))
    cuda("cuCtxSynchronize")
    cuda("cuCtxSetCurrent", context[0])
    stream, event = ctypes.c_void_p(), ctypes.c_void_p()
    cuda("cuStreamCreate", ctypes.byref(stream), 1)
    cuda("cuCtxSetCurrent", context[1])
    cuda("cuEventCreate", ctypes.byref(event), 0)
    cuda.show("cuEventRecord", event, stream)      # an event of one GPU, a stream of the other
    cuda("cuEventRecord", event, None)
    cuda.show("cuStreamWaitEvent", stream, event, 0)
    cuda.show("cuStreamSynchronize", stream)


def in_torch():
    torch.manual_seed(5)
    tensors = [torch.randn(n) for n in (1, 1000, 5 << 20)]
    for tensor in tensors:
        first = tensor.to("cuda:0")
        second = first.to("cuda:1")
        back = second.to("cuda:0")
        print(f"there and back {digest(first)} {digest(second)} {digest(back)}")
    print(
        f"access {torch.cuda.can_device_access_peer(0, 1)} {torch.cuda.can_device_access_peer(1, 0)}"
    )
    strided = tensors[1].to("cuda:0").view(10, 100)[:, ::3].to("cuda:1")
    print(f"strided {digest(strided)} on {strided.device}")
    streams = [torch.cuda.Stream(gpu) for gpu in range(2)]
    data = tensors[2].pin_memory()
    parts = []
    for gpu in range(2):
        with torch.cuda.stream(streams[gpu]):
            part = data.to(f"cuda:{gpu}", non_blocking=True)
            for _ in range(20):
                part = part * 1.01 + gpu
            parts.append(part)
    event = streams[1].record_event()
    streams[0].wait_event(event)
    with torch.cuda.stream(streams[0]):
        total = parts[0] + parts[1].to("cuda:0", non_blocking=True)
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    print(f"streams {digest(parts[0])} {digest(parts[1])} {digest(total)}")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(),
                                torch.nn.Linear(64, 8)).to("cuda:0")
    parallel = torch.nn.DataParallel(model, device_ids=[0, 1])
    batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(9)).to("cuda:0")
    for _ in range(3):
        loss = parallel(batch).square().mean()
        model.zero_grad()
        loss.backward()
    print(f"DataParallel {digest(loss)} {digest(model[0].weight.grad)}")
    split = torch.nn.Sequential(
        torch.nn.Linear(64, 64).to("cuda:0"),
        torch.nn.Linear(64, 8).to("cuda:1"))
    out = split[1](split[0](batch).to("cuda:1"))
    out.sum().backward()
    print(f"split model {digest(out)} {digest(split[0].weight.grad)}")


def main():
    if torch.cuda.device_count() < 2:
        print(f"SKIPPED: 2 GPUs needed, {torch.cuda.device_count()} here")
        return 77
    cuda = Driver()
    context = contexts(cuda)
    if peers(cuda, context):
        peer_kernel(cuda, context)
    peer_copies(cuda, context)
    in_torch()
    return 0


if __name__ == "__main__":
    sys.exit(main())

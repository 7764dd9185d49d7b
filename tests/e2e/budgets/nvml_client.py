"""A program that asks NVML and CUDA what they say of a GPU's memory, as it is told on standard
input; one answer a line. Like pynvml it loads both libraries by name. It knows nothing of Tube.

  init | error CODE        nvmlInit_v2; nvmlErrorString
  memory                   nvmlDeviceGetMemoryInfo: total free used
  memory2                  and its second form: total reserved free used
  processes FORM ROOM      nvmlDeviceGetComputeRunningProcesses and _v3: the code, the count, pid:bytes ..
  count | arguments | newer   passed on: the number of GPUs; many arguments; a call that is not there
  cuda                     cuInit and the context
  info | take MIB | drop   cuMemGetInfo; cuMemAlloc; cuMemFree of the last
"""
import ctypes
import sys

NVML = ctypes.CDLL("libnvidia-ml.so.1")
NVML.nvmlErrorString.restype = ctypes.c_char_p
NVML.nvmlErrorString.argtypes = [ctypes.c_int]
u64, u32 = ctypes.c_ulonglong, ctypes.c_uint


def fields(name, *of):
    return type(name, (ctypes.Structure, ), {"_fields_": list(of)})


Memory = fields("Memory", ("total", u64), ("free", u64), ("used", u64))
Memory2 = fields("Memory2", ("version", u32), ("total", u64), ("reserved", u64), ("free", u64),
                 ("used", u64))
Info1 = fields("Info1", ("pid", u32), ("bytes", u64))
Info2 = fields("Info2", ("pid", u32), ("bytes", u64), ("gpu", u32), ("compute", u32))


def device():
    handle = ctypes.c_void_p()
    assert NVML.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    return handle


class Program:

    def __init__(self):
        self.cu, self.taken = None, []

    def init(self):
        return NVML.nvmlInit_v2()

    def error(self, code):
        return NVML.nvmlErrorString(int(code)).decode()

    def memory(self):
        memory = Memory()
        code = NVML.nvmlDeviceGetMemoryInfo(device(), ctypes.byref(memory))
        return code or f"{memory.total} {memory.free} {memory.used}"

    def memory2(self):
        memory = Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
        code = NVML.nvmlDeviceGetMemoryInfo_v2(device(), ctypes.byref(memory))
        return code or f"{memory.total} {memory.reserved} {memory.free} {memory.used}"

    def processes(self, form, room):
        call, info = {"1": (NVML.nvmlDeviceGetComputeRunningProcesses, Info1),
                      "3": (NVML.nvmlDeviceGetComputeRunningProcesses_v3, Info2)}[form]
        count, infos = u32(int(room)), (info * int(room))()
        code = call(device(), ctypes.byref(count), infos if int(room) else None)
        listed = [f"{i.pid}:{i.bytes}" for i in infos[:count.value]] if code == 0 else []
        return " ".join([str(code), str(count.value), *listed])

    def count(self):
        count = u32()
        code = NVML.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return code or count.value

    def arguments(self):
        call = NVML.nvmlDeviceGetSamples
        call.restype = ctypes.c_double
        pointer, number = ctypes.c_void_p, ctypes.c_long
        return call(pointer(1), ctypes.c_int(2), u64(3), pointer(4), pointer(5), number(6),
                    number(7), number(8), ctypes.c_double(9.5), ctypes.c_double(10.25))

    def newer(self):
        return NVML.nvmlDeviceGetPowerUsage(device(), None)

    def cuda(self):
        self.cu = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        return (self.cu.cuInit(0) or self.cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
                or self.cu.cuCtxSetCurrent(context))

    def info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        code = self.cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return code or f"{total.value} {free.value}"

    def take(self, mebibytes):
        address = u64()
        code = self.cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(mebibytes) << 20))
        self.taken.append(address)
        return code

    def drop(self):
        return self.cu.cuMemFree_v2(self.taken.pop())


def main():
    program = Program()
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        print(getattr(program, verb)(*words), flush=True)


if __name__ == "__main__":
    main()

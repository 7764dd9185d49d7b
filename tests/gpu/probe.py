"""What is known of the GPU from outside any measured process: is there one, its name, driver, and
memory in use (NVML)."""
import ctypes
import os
import pathlib
import subprocess
import sys


def gpu_count(driver):
    """cuInit and cuDeviceGetCount in a process of their own, so that this one stays free of CUDA; 0
    when either fails."""
    code = (
        "import ctypes, sys\nlib = ctypes.CDLL(sys.argv[1])\nn = ctypes.c_int(0)\n"
        "print(n.value if lib.cuInit(0) == 0 and lib.cuDeviceGetCount(ctypes.byref(n)) == 0 else 0)"
    )
    out = subprocess.run([sys.executable, "-c", code, str(driver)], capture_output=True, text=True)
    return int(out.stdout) if out.returncode == 0 and out.stdout.strip().isdigit() else 0


def has_gpu(driver):
    return gpu_count(driver) > 0


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]


# The first GPU of the machine that tests and benches use (bench/all --gpu).
GPU = int(os.environ.get("TEST_GPU", "0"))


class Nvml:
    """The few NVML questions asked here, of the GPU of this number; every answer is None where NVML
    is not there."""

    def __init__(self, driver, number=GPU):
        self.lib, self.device, self.number = None, ctypes.c_void_p(), number
        for name in (pathlib.Path(driver).parent / "libnvidia-ml.so.1", "libnvidia-ml.so.1"):
            try:
                self.lib = ctypes.CDLL(str(name))
                break
            except OSError:
                continue
        if self.lib is not None and (self.lib.nvmlInit_v2() != 0 or
                                     self.lib.nvmlDeviceGetHandleByIndex_v2(
                                         number, ctypes.byref(self.device)) != 0):
            self.lib = None

    def memory_used(self):
        """Bytes in use on this GPU by everyone, as an outside process sees them."""
        if self.lib is not None:
            memory = Memory()
            if self.lib.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)) == 0:
                return memory.used
        mib = smi("memory.used", self.number)
        return int(mib) << 20 if mib and mib.isdigit() else None

    def text(self, function, *args):
        if self.lib is None:
            return None
        buffer = ctypes.create_string_buffer(96)
        return buffer.value.decode() if getattr(self.lib, function)(*args, buffer,
                                                                    96) == 0 else None

    def uuid(self):
        """As CUDA_VISIBLE_DEVICES names it."""
        return self.text("nvmlDeviceGetUUID", self.device) or smi("uuid", self.number)

    def describe(self):
        return {
            "gpu": self.text("nvmlDeviceGetName", self.device) or smi("name", self.number) or
                   "unknown",
            "driver": self.text("nvmlSystemGetDriverVersion") or
                      smi("driver_version", self.number) or "unknown"
        }


def smi(field, number):
    try:
        out = subprocess.run([
            "nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "-i",
            str(number)
        ], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return out.stdout.strip() if out.returncode == 0 else None

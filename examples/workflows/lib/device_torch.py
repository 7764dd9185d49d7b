"""Where a GPU stage computes: torch tensors on one GPU, or on the CPU to rehearse it.

Everything runs in torch's current stream. A function gives the same bytes for the same inputs:
cuDNN is told so, cuBLAS by CUBLAS_WORKSPACE_CONFIG, and no other forward pass here adds in an order
that changes. torch.use_deterministic_algorithms() is left alone: it would replace interpolation by
a slow one whose backward pass repeats itself, which nobody runs.
"""
import base64
import os
import pickle

import torch
from torch.multiprocessing import reductions


def settle():
    """Inference that repeats itself."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))  # It may be loaded already.
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


class Side:
    """What passing.HostSide is, for tensors. `name` is the number of a GPU, or cpu."""

    def __init__(self, name):
        settle()
        self.on_gpu = name != "cpu"
        self.device = torch.device("cuda", int(name)) if self.on_gpu else torch.device("cpu")
        self.shares = self.on_gpu
        if self.on_gpu:
            torch.cuda.set_device(self.device)

    def describe(self, tensor):
        return str(tensor.dtype).removeprefix("torch."), list(tensor.shape)

    def upload(self, array):
        tensor = torch.from_numpy(array)
        return tensor.to(self.device, non_blocking=True) if self.on_gpu else tensor.clone()

    def download(self, tensor, array):
        torch.from_numpy(array).copy_(tensor.contiguous(), non_blocking=True)

    def register(self, data):
        if not self.on_gpu:
            return
        status = torch.cuda.cudart().cudaHostRegister(data.ctypes.data, data.nbytes, 0)
        if int(status) != 0:
            raise RuntimeError(f"cudaHostRegister of {data.nbytes} bytes failed: {status}")

    def share(self, tensor):
        """(what must be kept, text): a CUDA IPC handle of a tensor that this process made.

        torch counts in the handle how many processes let go. Ours never reads that count before
        all of them answered, so one handle serves any number of consumers.
        """
        kept = tensor.contiguous()
        return kept, base64.b64encode(pickle.dumps(reductions.reduce_tensor(kept))).decode()

    def open(self, text):
        """The tensor of a handle, on this side's GPU: copied when it lies on another one."""
        rebuild, arguments = pickle.loads(base64.b64decode(text))
        return rebuild(*arguments).to(self.device)

    def synchronise(self):
        if self.on_gpu:
            torch.cuda.current_stream(self.device).synchronize()

    def stream(self):
        return torch.cuda.current_stream(self.device) if self.on_gpu else None

    def stored(self, tensor):
        return tensor.contiguous()

    def taken(self, held):
        return torch.from_dlpack(held)

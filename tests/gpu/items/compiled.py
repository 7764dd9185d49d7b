"""A torch.compile function: Triton kernels made at run time, fused pointwise work and a
reduction."""
import worker


def setup():
    torch = worker.torch_setup()

    @torch.compile
    def function(x, y):
        return torch.nn.functional.gelu(x * 2 + y).softmax(-1) @ y + (x * x).sum(-1, keepdim=True)

    x = torch.randn(512, 512, device="cuda")
    y = torch.randn(512, 512, device="cuda")
    state = {}

    def step():
        state["out"] = function(x, y)
        torch.cuda.synchronize()

    return step, lambda: {"out": worker.raw(state["out"])}


worker.serve(setup)

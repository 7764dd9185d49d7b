"""A small network whose every step runs under torch.profiler with CPU and CUDA activities.

What is recorded of the GPU differs: natively its kernels, through Tube nothing, and the profiler
says so. Equal must be the results, the operators seen on the CPU, and that the tables and traces
are written at all.
"""
import os
import sys

import worker


def setup():
    torch = worker.torch_setup()
    from torch.profiler import ProfilerActivity, profile
    layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)]
    model = torch.nn.Sequential(*layers).cuda()
    batch = torch.randn(32, 512, device="cuda")
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    trace = os.path.join(os.environ.get("ITEM_OUTPUTS") or "/tmp", f"trace-{os.getpid()}.json")
    state = {}

    def step():
        with profile(activities=both, record_shapes=True) as profiler:
            state["logits"] = model(batch)
            torch.cuda.synchronize()
        averages = profiler.key_averages()
        state["table"] = averages.table(sort_by="self_cpu_time_total", row_limit=5)
        state["operators"] = sorted({e.key for e in averages if e.key.startswith("aten::")})
        state["on_gpu"] = sum("CUDA" in str(event.device_type) for event in profiler.events())
        profiler.export_chrome_trace(trace)

    def outputs():
        print(f"{state['on_gpu']} events on the GPU, {os.path.getsize(trace)} bytes of trace\n"
              f"{state['table']}", file=sys.stderr)
        os.unlink(trace)
        return {"logits": worker.raw(state["logits"]),
                "operators": "\n".join(state["operators"]).encode()}

    return step, outputs


worker.serve(setup, warmup=3)

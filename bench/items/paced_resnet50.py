"""torchvision's ResNet-50, or the model that is named (batch 1, random weights), a step at every mark of a clock: what
copies_client's `steps` is for short kernels, under the same commands.

`steps PERIOD_US RUN_MS LEAD_MS`, then `go`: takes a step (an image up, the model, the logits down) at
each mark for LEAD, which do not count, then for RUN. It spins to the next mark, and a mark that went
by during a step is missed. `verify`: every step's logits are those of the first.
"""
import json
import sys
import time

import torch
import torchvision


def say(kind, **values):
    print(f"@{kind} {json.dumps(values)}", flush=True)


def spin_until(mark):
    while time.monotonic_ns() < mark:
        pass


def steps(step, mark, period_us, for_ms):
    """At each mark from this one on: (what each took in ns, marks that were missed, the next)."""
    times, missed = [], 0
    end = mark + for_ms * 1_000_000
    spin_until(mark)
    while mark < end:
        started = time.monotonic_ns()
        step()
        times.append(time.monotonic_ns() - started)
        passed = (time.monotonic_ns() - mark) // (period_us * 1000)
        missed += passed
        mark += (passed + 1) * period_us * 1000
        spin_until(min(mark, end))
    return times, missed, mark


def run(step, period_us, run_ms, lead_ms):
    *_, begin = steps(step, time.monotonic_ns(), period_us, lead_ms)
    times, missed, _ = steps(step, begin, period_us, run_ms)
    say("block", latency_ns=times, begin_ns=begin, end_ns=time.monotonic_ns(), missed=missed)


def main():
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    model = getattr(torchvision.models, sys.argv[1] if len(sys.argv) > 1 else "resnet50")(weights=None).eval().cuda()
    image = torch.randn(1, 3, 224, 224).pin_memory()
    first, wrong = model(image.cuda()).cpu(), []

    def step():
        logits = model(image.to("cuda", non_blocking=True)).cpu()
        if not wrong and not torch.equal(logits, first):
            wrong.append("other logits than those of the first step")

    for _ in range(8):
        step()
    say("ready")
    times = []
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == "steps":
            times = [int(number) for number in numbers]
            say("prepared")
        elif word == "go":
            run(step, *times)
        elif word == "verify":
            say("verified", wrong="".join(wrong))


if __name__ == "__main__":
    main()

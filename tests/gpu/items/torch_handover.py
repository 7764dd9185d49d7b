"""torch.multiprocessing: CUDA tensors, modules and events handed from process to process, all of
them in the arm of their parent.

Prints what each side saw, always in the parent and in one order, so that the output natively and
through Tube is the same. The second half runs everything once more with expandable segments, which
hand memory over by file descriptor instead of cudaIpc*. Exit status: 0, or 77 without PyTorch or a
GPU.
"""
import hashlib
import os
import subprocess
import sys

try:
    import torch
    import torch.multiprocessing as mp
except ImportError:
    print("SKIPPED: no PyTorch")
    sys.exit(77)

JOIN_S = 60


def digest(tensor):
    data = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{list(tensor.shape)} {hashlib.sha256(data).hexdigest()[:16]}"


def numbers(size, seed):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).cuda()


def run(target, *arguments):
    """A started child and the two queues to and from it."""
    context = mp.get_context("spawn")
    to_child, from_child = context.Queue(), context.Queue()
    child = context.Process(target=target, args=(to_child, from_child, *arguments))
    child.start()
    return child, to_child, from_child


def ended(child):
    child.join(JOIN_S)
    alive = child.is_alive()
    if alive:
        child.kill()
    print(f"  child ended: {'no' if alive else child.exitcode}")


# ---- parent to child
# --------------------------------------------------------------------------------------------------

def doubles(to_child, from_child):
    while (tensor := to_child.get()) is not None:
        seen = digest(tensor)
        tensor.mul_(2)
        torch.cuda.synchronize()
        del tensor
        from_child.put(seen)
    from_child.put("left")


def parent_to_child():
    child, to_child, from_child = run(doubles)
    base = numbers(1 << 20, 1)
    for name, tensor in (("small", numbers(10, 2)), ("scalar", numbers(
        (), 3)), ("large", numbers(9 << 20, 4)), ("view", base[1000:5000]),
                         ("strided", base.view(1024, 1024)[::2, 1::3]),
                         ("half", numbers(1000, 5).half()), ("again", base)):
        to_child.put(tensor)
        seen = from_child.get(timeout=JOIN_S)
        torch.cuda.synchronize()
        print(f"  {name}: child saw {seen}, then parent {digest(tensor)}")
    to_child.put(None)
    print("  " + from_child.get(timeout=JOIN_S))
    ended(child)


# ---- child to parent, and its end
# -------------------------------------------------------------------------------------

def makes(to_child, from_child):
    kept = [numbers(size, size) for size in (7, 70_000, 3 << 20)]
    for tensor in kept:
        from_child.put(tensor)
    to_child.get()  # its memory must stay until the parent is done with it
    del kept
    from_child.put("freed")


def child_to_parent():
    child, to_child, from_child = run(makes)
    received = [from_child.get(timeout=JOIN_S) for _ in range(3)]
    for tensor in received:
        print(f"  received {digest(tensor)}")
    copies = [tensor.clone() for tensor in received]
    received[0].add_(1)
    print(f"  changed {digest(received[0])}, the copy {digest(copies[0])}")
    del received, tensor
    torch.cuda.synchronize()
    to_child.put("done")
    print("  " + from_child.get(timeout=JOIN_S))
    ended(child)
    print(f"  after its end {digest(copies[2])}")


# ---- reference counts
# -------------------------------------------------------------------------------------------------

def holds(to_child, from_child):
    held = [to_child.get() for _ in range(4)]
    from_child.put(sum(float(t[0]) for t in held))
    to_child.get()
    held.clear()
    torch.cuda.synchronize()
    from_child.put("let go")
    to_child.get()


def reference_counts():
    """What a consumer holds stays allocated in the producer, and comes free when the consumer lets
    go."""
    child, to_child, from_child = run(holds)
    torch.cuda.synchronize()
    torch.cuda.ipc_collect()
    before = torch.cuda.memory_allocated()
    for value in range(4):
        tensor = torch.full((1 << 20,), float(value), device="cuda")
        to_child.put(tensor)
        del tensor
    print(f"  child's sum {from_child.get(timeout=JOIN_S)}")
    print(f"  held {torch.cuda.memory_allocated() - before}")
    to_child.put("let go")
    print("  " + from_child.get(timeout=JOIN_S))
    torch.cuda.ipc_collect()
    print(f"  held {torch.cuda.memory_allocated() - before}")
    to_child.put("end")
    ended(child)


# ---- a model, streams, events
# -----------------------------------------------------------------------------------------

def evaluates(to_child, from_child, model):
    with torch.no_grad():
        out = model(torch.ones(4, 32, device="cuda"))
        for parameter in model.parameters():
            parameter.add_(1)
    torch.cuda.synchronize()
    from_child.put(digest(out))
    to_child.get()


def shared_model():
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(),
                                torch.nn.Linear(64, 8)).cuda()
    child, to_child, from_child = run(evaluates, model)
    print(f"  child's output {from_child.get(timeout=JOIN_S)}")
    print(f"  weights after {digest(model[0].weight)}")
    to_child.put("end")
    ended(child)


def follows(to_child, from_child):
    handle, tensor = to_child.get(), to_child.get()
    event = torch.cuda.Event.from_ipc_handle(torch.cuda.current_device(), handle)
    stream = torch.cuda.Stream()
    event.wait(stream)
    with torch.cuda.stream(stream):
        result = tensor.sum()
    event.synchronize()
    from_child.put((event.query(), float(result)))
    del tensor
    to_child.get()


def interprocess_event():
    child, to_child, from_child = run(follows)
    event = torch.cuda.Event(interprocess=True)
    tensor = torch.zeros(4 << 20, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(50):
            tensor.add_(0.5)
        event.record()
    to_child.put(event.ipc_handle())
    to_child.put(tensor)
    done, total = from_child.get(timeout=JOIN_S)
    print(f"  event done {done}, sum {total}")
    to_child.put("end")
    ended(child)


# ---- a consumer that dies
# ---------------------------------------------------------------------------------------------

def dies(to_child, from_child):
    tensor = to_child.get()
    from_child.put(digest(tensor))
    from_child.close()
    from_child.join_thread()
    os.kill(os.getpid(), 9)


def consumer_dies():
    tensor = numbers(2 << 20, 11)
    for _ in range(2):
        child, to_child, from_child = run(dies)
        to_child.put(tensor)
        print(f"  child saw {from_child.get(timeout=JOIN_S)}")
        ended(child)
    print(f"  parent still has {digest(tensor)}")


PARTS = (parent_to_child, child_to_parent, reference_counts, shared_model, interprocess_event,
         consumer_dies)


def main():
    if not torch.cuda.is_available():
        print("SKIPPED: PyTorch finds no GPU")
        return 77
    for part in PARTS:
        print(part.__name__, flush=True)
        part()
    if "HANDOVER_AGAIN" not in os.environ:
        print("with expandable segments", flush=True)
        again = dict(os.environ, HANDOVER_AGAIN="1",
                     PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        code = subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=again,
                              timeout=180).returncode
        print(f"ended {code}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

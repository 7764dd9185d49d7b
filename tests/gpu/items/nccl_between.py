"""NCCL between two processes, or four where there are so many GPUs, one GPU each:
torch.distributed with a file for the rendezvous, collectives, point to point, a training of
DistributedDataParallel. Run with all GPUs visible to all, with one each (CUDA_VISIBLE_DEVICES), and
with NCCL's older way to share memory (cudaIpc* instead of file descriptors).

Prints what each rank computed, in their order. Exit status: 0, or 77.
"""
import hashlib
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("SKIPPED: no PyTorch")
    sys.exit(77)

# Of a rank, which may see its own GPU only: as many as the program that started it has.
RANKS = int(os.environ.get("RANKS", 4 if torch.cuda.device_count() >= 4 else 2))
SIZES = (1, 1000, 1 << 16, (1 << 22) + 3)


def digest(tensor):
    data = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(data).hexdigest()[:16]


def values(size, kind, rank):
    seed = 17 * rank + torch.Size(size if isinstance(size, tuple) else (size,)).numel() % 1000
    made = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 100
    return made.to(kind).cuda()


def collectives(rank):
    for kind in (torch.float32, torch.bfloat16, torch.int64):
        for size in SIZES:
            name = f"{size} of {str(kind).split('.')[-1]}"
            tensor = values(size, kind, rank)
            dist.all_reduce(tensor)
            print(f"all_reduce {name}: {digest(tensor)}")
            tensor = values(size, kind, rank)
            dist.broadcast(tensor, 1)
            print(f"broadcast {name}: {digest(tensor)}")
            gathered = [torch.zeros(size, dtype=kind, device="cuda") for _ in range(RANKS)]
            dist.all_gather(gathered, values(size, kind, rank))
            print(f"all_gather {name}: {' '.join(digest(t) for t in gathered)}")
            part = torch.zeros(size, dtype=kind, device="cuda")
            dist.reduce_scatter_tensor(part, values(RANKS * size, kind, rank))
            print(f"reduce_scatter {name}: {digest(part)}")


def point_to_point(rank):
    for size in SIZES:
        tensor = values(size, torch.float32, rank)
        received = torch.zeros_like(tensor)
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, tensor, rank ^ 1),
             dist.P2POp(dist.irecv, received, rank ^ 1)])
        for work in works:
            work.wait()
        print(f"exchanged {size}: {digest(received)}")


def many_small(rank):
    tensor = values(4096, torch.float32, rank)
    for _ in range(200):
        dist.all_reduce(tensor)
        tensor.mul_(0.5)
    print(f"200 small ones: {digest(tensor)}")


def in_a_graph(rank):
    """An all-reduce captured once and replayed."""
    tensor = values(1 << 16, torch.float32, rank)
    dist.all_reduce(tensor.clone())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)
        tensor.mul_(0.5)
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    print(f"replayed: {digest(tensor)}")


def training(rank):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(),
                                torch.nn.Linear(128, 10)).cuda()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), 1e-3)
    losses = []
    for step in range(10):
        data = values((32, 64), torch.float32, 100 * step + rank) / 100
        loss = parallel(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    print(
        f"losses {digest(torch.stack(losses))}, weights {digest(model[0].weight)} {digest(model[2].bias)}"
    )


def work(rank, rendezvous):
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    for part in (collectives, point_to_point, many_small, in_a_graph, training):
        part(rank)
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    return 0


def start(folder, name):
    ranks = []
    for rank in range(RANKS):
        env = dict(os.environ, RANKS=str(RANKS))
        if name == "one each":
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str,
                                                                          range(RANKS)))).split(",")
            env["CUDA_VISIBLE_DEVICES"] = visible[rank]
        if name == "by cudaIpc":
            env["NCCL_CUMEM_ENABLE"] = "0"
        output = open(os.path.join(folder, f"{name}-{rank}"), "w+b")
        command = [
            sys.executable, __file__,
            str(rank),
            os.path.join(folder, f"rendezvous-{name.replace(' ', '-')}")
        ]
        ranks.append((subprocess.Popen(command, env=env, stdout=output), output))
    return ranks


def main():
    if len(sys.argv) == 3:
        return work(int(sys.argv[1]), sys.argv[2])
    if torch.cuda.device_count() < RANKS:
        print(f"SKIPPED: {RANKS} GPUs needed, {torch.cuda.device_count()} here")
        return 77
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name in ("all visible", "one each", "by cudaIpc"):
            for rank, (process, output) in enumerate(start(folder, name)):
                try:
                    code = process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    code = process.wait()
                failed = failed or code != 0
                output.seek(0)
                print(f"{name}, rank {rank} ended {code}:\n{output.read().decode()}", end="")
                output.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What PyTorch does with the driver beside models: streams, events, graphs, copies, memory figures,
compiled functions, attention, convolutions with gradients, linear algebra, FFTs, sparse matrices,
random numbers."""
import cases

torch = cases.torch_setup()
from torch import nn  # noqa: E402


def needs_gpu():
    if cases.DEVICE != "cuda":
        raise cases.Skipped("needs a GPU")


def net():
    return nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256),
                         nn.Linear(256, 64)).to(cases.DEVICE)


@cases.case
def graph_of_a_model():
    needs_gpu()
    cases.seed("graph")
    model = net().eval()
    fixed = torch.randn(16, 128, device="cuda")
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(fixed)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(fixed)
        found = []
        for step in range(5):
            fixed.copy_(torch.full((16, 128), step / 7, device="cuda"))
            graph.replay()
            found.append(out.clone())
    return {"out": torch.stack(found)}


@cases.case
def graphed_training():
    """make_graphed_callables: forward and backward as graphs, the optimiser eager."""
    needs_gpu()
    cases.seed("graphed")
    model = net()
    model = torch.cuda.make_graphed_callables(model, (torch.randn(16, 128, device="cuda"),))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(10):
        optimizer.zero_grad(set_to_none=True)
        loss = model(torch.randn(16, 128, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {
        "losses": torch.stack(losses),
        "weights": torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    }


@cases.case
def whole_training_step_as_graph():
    needs_gpu()
    cases.seed("whole")
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, capturable=True)
    fixed, target = torch.randn(16, 128, device="cuda"), torch.randn(16, 64, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(fixed), target)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for _ in range(10):
        graph.replay()
        losses.append(loss.clone())
    return {
        "losses": torch.stack(losses),
        "weights": torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    }


@cases.case
def graphs_share_a_pool_with_random_numbers():
    needs_gpu()
    cases.seed("pool")
    fixed = torch.randn(64, 64, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        a = nn.functional.dropout(fixed @ fixed, 0.5)
    with torch.cuda.graph(second, pool=first.pool()):
        b = (a + 1).softmax(-1)
    found = []
    for _ in range(4):
        first.replay()
        second.replay()
        found += [a.clone(), b.clone()]
    return {"out": torch.stack(found)}


@cases.case
def streams_and_events():
    needs_gpu()
    cases.seed("streams")
    a = torch.randn(1024, 1024, device="cuda")
    streams = [torch.cuda.Stream(priority=p) for p in (0, -1, 0, -1)]
    done, parts = [], []
    ready = torch.cuda.Event()
    ready.record()
    for index, stream in enumerate(streams):
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            part = a * (index + 1)
            for _ in range(5):
                part = torch.tanh(part @ a / 64)
            parts.append(part)
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            done.append(event)
    for event in done:
        torch.cuda.current_stream().wait_event(event)
    total = sum(parts)
    torch.cuda.synchronize()
    facts = [
        all(event.query() for event in done), done[0].elapsed_time(done[1]) < 1e6,
        all(stream.query() for stream in streams)
    ]
    return {"total": total, "facts": str(facts)}


@cases.case
def tensors_freed_on_other_streams():
    needs_gpu()
    cases.seed("record_stream")
    side, sums = torch.cuda.Stream(), []
    for step in range(30):
        value = torch.full((1 << 18,), float(step), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sums.append((value * 2).sum())
        value.record_stream(side)
        del value
    torch.cuda.synchronize()
    return {"sums": torch.stack(sums)}


@cases.case
def memory_figures():
    needs_gpu()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = [torch.empty(1 << 20, device="cuda") for _ in range(5)]
    allocated = torch.cuda.memory_allocated() - before
    free, total = torch.cuda.mem_get_info()
    del kept
    peak = torch.cuda.max_memory_allocated() - before
    left = torch.cuda.memory_allocated() - before
    torch.cuda.empty_cache()
    facts = f"allocated {allocated} peak {peak} left {left} total {total} sane {0 < free <= total}"
    return {
        "facts": facts,
        "name": torch.cuda.get_device_name(),
        "properties": str(torch.cuda.get_device_capability())
    }


@cases.case
def out_of_memory_is_survived():
    needs_gpu()
    try:
        torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
        words = "no error"
    except torch.cuda.OutOfMemoryError:
        words = "out of memory"
    return {"words": words, "after": torch.arange(1000, device="cuda").sum()}


@cases.case
def copies():
    needs_gpu()
    cases.seed("copies")
    pageable = torch.randn(48 << 20 >> 2)
    pinned = pageable.clone().pin_memory()
    device = pinned.to("cuda", non_blocking=True)
    same = torch.equal(device.cpu(), pageable)
    big = torch.arange(200 << 20 >> 3, dtype=torch.int64)
    back = torch.empty_like(big).pin_memory()
    back.copy_(big.to("cuda"), non_blocking=True)
    torch.cuda.synchronize()
    strided = device[: 1 << 20].view(1024, 1024)[::3, ::5]
    gathered = device[torch.arange(0, 1 << 20, 7919, device="cuda")]
    return {
        "facts": f"{same} {torch.equal(big, back)} pinned {pinned.is_pinned()}",
        "strided": strided,
        "gathered": gathered,
        "bytes": device[:1 << 16].view(torch.uint8).cpu()
    }


@cases.case
def compiled_function():
    needs_gpu()
    cases.seed("compiled")

    @torch.compile
    def function(x, y):
        return nn.functional.gelu(x * 2 + y).softmax(-1) @ y + (x * x).sum(-1, keepdim=True)

    return {
        "out": function(torch.randn(256, 256, device="cuda"), torch.randn(256, 256, device="cuda"))
    }


@cases.case
def compiled_model_with_gradients():
    needs_gpu()
    cases.seed("compiled_model")
    model = net()
    compiled = torch.compile(model)
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = compiled(torch.randn(32, 128, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses)}


@cases.case
def compiled_with_graphs():
    needs_gpu()
    cases.seed("reduce_overhead")
    compiled = torch.compile(net().eval(), mode="reduce-overhead")
    with torch.no_grad():
        found = [
            compiled(torch.full((8, 128), step / 5, device="cuda")).clone() for step in range(6)
        ]
    return {"out": torch.stack(found)}


def attention(name, dtype, causal):
    cases.seed(name)
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backend = getattr(SDPBackend, name)
    q, k, v = (torch.randn(2, 4, 128, 64, device=cases.DEVICE, dtype=dtype, requires_grad=True)
               for _ in range(3))
    with sdpa_kernel([backend]):
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        out.float().square().sum().backward()
    return {"out": out, "dq": q.grad, "dk": k.grad, "dv": v.grad}


for kernel in ("MATH", "EFFICIENT_ATTENTION", "FLASH_ATTENTION", "CUDNN_ATTENTION"):
    for kind in (torch.float16, torch.bfloat16):
        cases.add(f"attention_{kernel.lower()}_{str(kind)[6:]}",
                  lambda kernel=kernel, kind=kind: attention(kernel, kind, True))


@cases.case
def convolutions_with_gradients():
    cases.seed("convolutions")
    found = {}
    for name, layer, shape in (("plain", nn.Conv2d(16, 32, 3, padding=1), (4, 16, 28, 28)),
                               ("strided", nn.Conv2d(16, 32, 5, stride=2),
                                (4, 16, 28, 28)), ("grouped", nn.Conv2d(16, 32, 3,
                                                                        groups=4), (4, 16, 28, 28)),
                               ("depthwise", nn.Conv2d(16, 16, 3, groups=16), (4, 16, 28, 28)),
                               ("dilated", nn.Conv2d(16, 16, 3, dilation=3), (4, 16, 28, 28)),
                               ("transposed", nn.ConvTranspose2d(16, 8, 4, stride=2),
                                (4, 16, 14, 14)), ("line", nn.Conv1d(16, 32, 7), (4, 16, 100)),
                               ("volume", nn.Conv3d(4, 8, 3), (2, 4, 12, 12, 12))):
        layer = layer.to(cases.DEVICE)
        x = torch.randn(shape, device=cases.DEVICE, requires_grad=True)
        y = layer(x)
        y.square().sum().backward()
        found.update({f"{name}_y": y, f"{name}_dx": x.grad, f"{name}_dw": layer.weight.grad})
    return found


@cases.case
def linear_algebra():
    cases.seed("linalg")
    a = torch.randn(4, 40, 40, device=cases.DEVICE, dtype=torch.float64)
    spd = a @ a.mT + 40 * torch.eye(40, device=cases.DEVICE, dtype=torch.float64)
    q, r = torch.linalg.qr(a)
    return {
        "cholesky":
            torch.linalg.cholesky(spd),
        "solve":
            torch.linalg.solve(spd, a),
        "eigh":
            torch.linalg.eigvalsh(spd),
        "q":
            q,
        "r":
            r,
        "svd":
            torch.linalg.svdvals(a),
        "det":
            torch.linalg.det(a),
        "inverse":
            torch.linalg.inv(spd),
        "lu":
            torch.linalg.lu_factor(a)[0],
        "lstsq":
            torch.linalg.lstsq(a, a[..., :3]).solution,
        "big":
            torch.linalg.solve(spd[0], torch.ones(40, 1, device=cases.DEVICE, dtype=torch.float64))
    }


@cases.case
def fourier():
    cases.seed("fft")
    x = torch.randn(8, 60, 50, device=cases.DEVICE)
    return {
        "fft": torch.fft.fft(x),
        "rfft2": torch.fft.rfft2(x),
        "irfft": torch.fft.irfft(torch.fft.rfft(x)),
        "fftn": torch.fft.fftn(x.double())
    }


@cases.case
def sparse_matrices():
    cases.seed("sparse")
    dense = torch.randn(200, 150, device=cases.DEVICE) * (torch.rand(200, 150, device=cases.DEVICE)
                                                          < 0.1)
    other = torch.randn(150, 40, device=cases.DEVICE)
    return {
        "coo": torch.sparse.mm(dense.to_sparse(), other),
        "csr": dense.to_sparse_csr() @ other,
        "vector": dense.to_sparse_csr() @ other[:, 0]
    }


@cases.case
def random_numbers():
    cases.seed("random")
    generator = torch.Generator(device=cases.DEVICE).manual_seed(99)
    return {
        "uniform": torch.rand(1000, device=cases.DEVICE),
        "normal": torch.randn(1000, device=cases.DEVICE, generator=generator),
        "integers": torch.randint(0, 1 << 40, (1000,), device=cases.DEVICE),
        "permutation": torch.randperm(5000, device=cases.DEVICE),
        "bernoulli": torch.bernoulli(torch.full((1000,), 0.3, device=cases.DEVICE)),
        "poisson": torch.poisson(torch.full((1000,), 4.0, device=cases.DEVICE)),
        "multinomial": torch.multinomial(torch.rand(50, device=cases.DEVICE), 200, replacement=True)
    }


@cases.case
def sorting_and_reductions():
    cases.seed("sorting")
    x = torch.randn(300, 700, device=cases.DEVICE)
    return {
        "sort": x.sort(-1).values,
        "topk": x.topk(20).indices,
        "median": x.median(0).values,
        "std": x.std(1),
        "unique": (x * 10).int().unique(),
        "histogram": torch.histc(x, 50),
        "nonzero": (x > 2).nonzero(),
        "masked": x[x > 2.5],
        "norm": x.norm(),
        "quantile": x[:, :50].quantile(0.3)
    }


@cases.case
def quantised_and_narrow_types():
    needs_gpu()
    cases.seed("narrow")
    a = torch.randint(-100, 100, (64, 128), device="cuda", dtype=torch.int8)
    b = torch.randint(-100, 100, (128, 96), device="cuda", dtype=torch.int8)
    x = (torch.randn(64, 128, device="cuda")).to(torch.float8_e4m3fn)
    y = (torch.randn(96, 128, device="cuda")).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")
    return {
        "int8": torch._int_mm(a, b),
        "float8": torch._scaled_mm(x, y, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    }


@cases.case
def embedded_kernels():
    """Operators whose kernels come from libraries beside ATen's own: layer norms, losses, pooling,
    interpolation, grids."""
    cases.seed("operators")
    x = torch.randn(2, 8, 30, 30, device=cases.DEVICE)
    grid = torch.rand(2, 20, 20, 2, device=cases.DEVICE) * 2 - 1
    return {
        "group_norm": nn.functional.group_norm(x, 4),
        "instance": nn.functional.instance_norm(x),
        "grid": nn.functional.grid_sample(x, grid, align_corners=False),
        "bicubic": nn.functional.interpolate(x, scale_factor=1.7, mode="bicubic"),
        "adaptive": nn.functional.adaptive_avg_pool2d(x, 7),
        "unfold": nn.functional.unfold(x, 3),
        "cumsum": x.cumsum(-1),
        "cdist": torch.cdist(x[0, 0], x[0, 1])
    }


cases.main()

"""Triton kernels launched directly: pointwise work, a softmax, a matrix product, atomics, tiles
loaded by descriptor, captured in a graph."""
import cases

torch = cases.torch_setup()
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def add_kernel(x, y, out, count, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    mask = places < count
    tl.store(out + places, tl.load(x + places, mask) + tl.sin(tl.load(y + places, mask)), mask)


@triton.jit
def softmax_kernel(x, out, columns, block: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, block)
    values = tl.load(x + row * columns + places, places < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + places, values / tl.sum(values, 0), places < columns)


@triton.jit
def product_kernel(a, b, c, m, n, k, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr):
    rows, columns = tl.program_id(0) * bm + tl.arange(0, bm), tl.program_id(1) * bn + tl.arange(
        0, bn)
    total = tl.zeros((bm, bn), tl.float32)
    for start in range(0, k, bk):
        inner = start + tl.arange(0, bk)
        left = tl.load(a + rows[:, None] * k + inner[None, :],
                       (rows[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(b + inner[:, None] * n + columns[None, :],
                        (inner[:, None] < k) & (columns[None, :] < n), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty),
             (rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def histogram_kernel(x, counts, count, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    mask = places < count
    tl.atomic_add(counts + tl.load(x + places, mask, other=0), 1, mask)


@triton.jit
def tile_kernel(source, out, rows, columns, block: tl.constexpr):
    tiles = tl.make_tensor_descriptor(source, [rows, columns], [columns, 1], [block, block])
    results = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [block, block])
    row, column = tl.program_id(0) * block, tl.program_id(1) * block
    results.store([row, column], tiles.load([row, column]) * 2)


def needs_gpu():
    if cases.DEVICE != "cuda":
        raise cases.Skipped("needs a GPU")


@cases.case
def pointwise():
    needs_gpu()
    cases.seed("pointwise")
    x, y = torch.randn(100003, device="cuda"), torch.randn(100003, device="cuda")
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(100003, 1024),)](x, y, out, 100003, 1024)
    return {"out": out}


@cases.case
def softmax():
    needs_gpu()
    cases.seed("softmax")
    x = torch.randn(300, 700, device="cuda")
    out = torch.empty_like(x)
    softmax_kernel[(300,)](x, out, 700, 1024)
    return {"out": out}


@cases.case
def products():
    needs_gpu()
    cases.seed("products")
    found = {}
    for kind in (torch.float16, torch.bfloat16, torch.float32):
        a, b = torch.randn(200, 150, device="cuda").to(kind), torch.randn(150, 170,
                                                                          device="cuda").to(kind)
        c = torch.empty(200, 170, device="cuda", dtype=kind)
        product_kernel[(4, 3)](a, b, c, 200, 170, 150, 64, 64, 32, num_warps=4, num_stages=3)
        found[str(kind)[6:]] = c
    return found


@cases.case
def atomics():
    needs_gpu()
    cases.seed("atomics")
    x = torch.randint(0, 64, (50000,), device="cuda", dtype=torch.int32)
    counts = torch.zeros(64, device="cuda", dtype=torch.int32)
    histogram_kernel[(triton.cdiv(50000, 512),)](x, counts, 50000, 512)
    return {"counts": counts}


@cases.case
def tiles_by_descriptor():
    """Descriptors made on the device: the kernel wants scratch memory from an allocator of the
    program's."""
    needs_gpu()
    cases.seed("tiles")
    triton.set_allocator(
        lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    x = torch.randn(256, 256, device="cuda", dtype=torch.float16)
    out = torch.empty_like(x)
    tile_kernel[(4, 4)](x, out, 256, 256, 64)
    return {"out": out}


@cases.case
def captured():
    needs_gpu()
    cases.seed("captured")
    x, y = torch.randn(5000, device="cuda"), torch.randn(5000, device="cuda")
    add_kernel[(5,)](x, y, x, 5000, 1024)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add_kernel[(5,)](x, y, x, 5000, 1024)
    for _ in range(3):
        graph.replay()
    return {"x": x}


@cases.case
def compiled_kernel_facts():
    needs_gpu()
    x = torch.zeros(1024, device="cuda")
    compiled = add_kernel[(1,)](x, x, x, 1024, 1024)
    return {
        "facts":
            f"{compiled.n_regs} {compiled.n_spills} {compiled.metadata.num_warps} {compiled.metadata.shared}"
    }


cases.main()

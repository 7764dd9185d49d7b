"""What has to be run for every figure of docs/performance.md: one command a part, with the seconds that
it takes on an H200."""
import dataclasses

import figures

NEIGHBOUR_ARMS = "native,tube,tube:1.TUBE_SLO_MS=8"
# Those that the figures are of: a start of the seven takes a minute.
SLICE = "tube:TUBE_SLICES=1:1.TUBE_SM_PERCENT="
PARTITION_ARMS = f"native,mps:1.CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50,{SLICE}12,{SLICE}50"


@dataclasses.dataclass(frozen=True)
class Part:
    """`groups`: of rows, by how their names begin, that the part measures; () all of its bench."""
    name: str
    bench: str
    command: tuple
    seconds: int
    groups: tuple = ()
    gpus: int = 1  # 0: needs none
    budget: bool = True  # knows --budget
    backend: bool = True
    quick: tuple = ("--quick",)
    figure: str = ""  # of a bench whose parts cannot be told apart by groups: how the words begin


def neighbours(only, seconds, groups, arms=""):
    return Part(f"neighbours {only}", "neighbours",
                ("neighbours", "--only", only, *(("--arms", arms) if arms else ())), seconds,
                groups)


LIGHT, MODEL = "light function", "ResNet-50, a step"
SEAM = (
    Part("calls", "calls", ("calls",), 150),
    Part("steps", "steps", ("steps", "--arms", f"native,tube,{figures.BARE}"), 110),
    Part("starts", "coldstart", ("coldstart/run", "--programs", "driver,runtime,torch"), 120,
         quick=("--runs", "3", "--many-runs", "1", "--torch-runs", "1", "--copies", "1,4")),
)
PARTS = SEAM + (
    Part("footprint", "footprint", ("footprint",), 560, ("ResNet-50 functions",), budget=False,
         backend=False, quick=("--counts", "1"), figure="GPU memory"),
    Part("footprint within", "footprint",
         ("footprint", "--counts", "48", "--within", "8", "--arms", "tube"), 300,
         ("ResNet-50 functions within",), budget=False, backend=False, figure="48 ResNet-50"),
    Part("isolate", "isolate", ("isolate",), 300),
    neighbours("base", 120, (LIGHT,)),
    # Under MPS a step beside long kernels starves for seconds.
    neighbours("models", 160, (MODEL,), NEIGHBOUR_ARMS),
    neighbours("fairness", 40, ("10 functions",)),
    neighbours("starts", 60, ("a function that starts",)),
    neighbours("workflows", 40, ("two workflows",)),
    neighbours("crowd", 120, ("47 functions",), "native,tube"),
    neighbours("deadlines", 240, ("six models",), "native,mps,tube"),
    Part("partition", "partition", ("partition", "--arms", PARTITION_ARMS), 240),
    Part("pinned_copies", "pinned_copies", ("pinned_copies",), 90),
    Part("pageable", "pageable", ("pageable",), 180),
    Part("pinned", "pinned", ("pinned",), 180),
    Part("pool", "pool", ("pool",), 60),
    Part("by_address", "by_address", ("by_address",), 30, budget=False, quick=("--tiny",)),
    Part("models_memory", "models_memory", ("models_memory",), 400,
         quick=("--seconds", "5", "--allocators", "none")),
    Part("evict", "evict", ("evict", "--arms", "native,tube,tube:TUBE_EVICT_POLICY=lru"), 150,
         ("one function", "two functions", "four functions", "a neighbour")),
    Part("evict over two links", "evict", ("evict", "--gpus", "2"), 60, ("two links",), gpus=2),
    Part("pass", "pass", ("pass",), 60, budget=False, figure=("125 MB from", "put + get", "host")),
    Part("pass between GPUs", "pass", ("pass", "--gpus", "2"), 60, gpus=2, budget=False,
         figure="125 MB to another"),
    Part("store", "store", ("store",), 60, budget=False),
    Part("workflows", "workflows", ("workflows", "--arms", "native+host,mps+host,tube+store"), 480,
         figure=("data passing", "P99 of", "the same, the")),
    Part("workflows' rates", "workflows",
         ("workflows", "--arms", "native+host,mps+host,tube+store", "--measure", "rate"), 550,
         figure=("rate at", "the same against")),
    Part("multipath", "multipath", ("multipath",), 450, gpus=2),
    Part("paths", "paths", ("paths",), 20, gpus=0),
    Part("attacks", "attacks", ("attacks",), 400, gpus=0, backend=False),
    Part("pool_trace", "pool_trace", ("pool_trace",), 20, gpus=0, budget=False, backend=False,
         quick=("--seconds", "30")),
)


def named(names):
    """The parts, in the order above; KeyError: the first that there is not."""
    wanted = [name.strip() for name in names.split(",")]
    known = {part.name for part in PARTS}
    for name in wanted:
        if name not in known:
            raise KeyError(name)
    return [part for part in PARTS if part.name in wanted]


def gives(part, figure):
    """Whether a run of the part gives the figure (of figures.FIGURES)."""
    words, bench, group = figure[0], figure[1], figure[2]
    return (bench == part.bench and (not part.groups or group.startswith(part.groups)) and
            (not part.figure or words.startswith(part.figure)))


def missing(results):
    """The parts of whose figures at least one has no run in `results` (of read_result.merge), and
    these figures by part."""
    have = {cells[0] for cells in figures.rows(results)}
    found = {}
    for part in PARTS:
        lacks = [figure[0] for figure in figures.FIGURES
                 if gives(part, figure) and figure[0] not in have]
        if lacks:
            found[part.name] = lacks
    return found

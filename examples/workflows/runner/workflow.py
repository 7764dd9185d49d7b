"""A workflow as its workflow.toml describes it: stages, edges, sizes, and what each request asks.

    name = "traffic"; shape = "condition"; slo_ms = 200; batch = 16; batches = [1, 4, 8, 16]
    variants = 16; seed = 1
    [counts]                    drawn for each variant from the seed
    objects = {negative_binomial_mean = 6, variance = 18, most = 32, per = "frame"}
    car_share = 0.6             of the objects, each by itself: `cars`; the others are `persons`
    has_text = 0.6              1 with this probability, else 0
    [[stage]]
    name = "detect"; kind = "gpu"; program = "detect.py"; inputs = ["preprocess.images"]
    outputs = {cars = {dtype = "float32", shape = ["cars", 3, 224, 224]}}

An input is called like the output that it takes; where a stage takes two outputs of one name, or
wants another one, it says so: "left.scores as first". Stages come after those whose outputs they
take. A stage whose inputs are all null is skipped, and so are its outputs, unless `join` is true:
it runs with what is there. `params` of a stage are added to those of the request.

Request i is variant i % variants. What a request asks depends on seed, variant and batch only, so
one run of each variant tells every request's result. Standard library only.
"""
import dataclasses
import math
import pathlib
import random

try:
    import tomllib
except ImportError:  # before Python 3.11; every pip brings one
    from pip._vendor import tomli as tomllib

WORKFLOWS = pathlib.Path(__file__).resolve().parents[1]
STANDIN_SHARE = 100  # a stand-in's tensors have this part of the bytes
ITEM_BYTES = {"uint8": 1, "bool": 1, "int8": 1, "float16": 2, "bfloat16": 2, "float32": 4,
              "int32": 4, "int64": 8, "float64": 8}


class WorkflowError(Exception):
    """A workflow cannot be read or did not run; the text names the stage."""


@dataclasses.dataclass(frozen=True)
class Input:
    """What a stage calls `name` is the output `output` of `stage`."""
    name: str
    stage: str
    output: str


@dataclasses.dataclass(frozen=True)
class Output:
    dtype: str
    shape: tuple  # of numbers and names of counts
    when: str = None  # a count that must not be 0; stand-ins ask, a real function knows

    def sizes(self, params):
        """The shape for these params, or None when this output is not there."""
        sizes = [params[size] if isinstance(size, str) else size for size in self.shape]
        absent = 0 in sizes or (self.when is not None and not params[self.when])
        return None if absent else sizes

    def standin(self, params):
        """The stand-in's shape: the first dimension kept, the rest one of a hundredth, in whole
        words of 16 bytes."""
        sizes = self.sizes(params)
        if sizes is None:
            return None
        item, rest = ITEM_BYTES[self.dtype], math.prod(sizes[1:])
        words = max(1, round(rest * item / STANDIN_SHARE / 16))
        return [sizes[0], words * 16 // item]

    def bytes(self, params):
        return math.prod(self.sizes(params) or [0]) * ITEM_BYTES[self.dtype]


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    kind: str  # host or gpu
    program: pathlib.Path
    inputs: tuple
    outputs: dict
    join: bool
    params: dict


@dataclasses.dataclass(frozen=True)
class Request:
    id: int
    variant: int
    params: dict


@dataclasses.dataclass(frozen=True)
class Workflow:
    name: str
    shape: str
    slo_ms: float
    batch: int
    batches: tuple
    variants: int
    seed: int
    counts: dict
    stages: dict  # name -> Stage, in order
    folder: pathlib.Path

    def requests(self, count, batch=None):
        """The first `count` requests."""
        batch = batch or self.batch
        plan = [self.params(variant, batch) for variant in range(min(count, self.variants))]
        return [Request(i, i % self.variants, plan[i % self.variants]) for i in range(count)]

    def params(self, variant, batch):
        """What a request of this variant asks."""
        params = {"seed": self.seed, "variant": variant, "batch": batch}
        for name, rule in self.counts.items():
            chosen = random.Random(f"{self.name} {self.seed} {variant} {batch} {name}")
            params.update(drawn(name, rule, params, chosen))
        return params

    def stage_params(self, stage, params, standin=False):
        """What one stage is told: the request's params and its own; a stand-in also its outputs'
        shapes (null: not there)."""
        told = dict(params, **stage.params)
        if standin:
            told["standin"] = {name: {"dtype": output.dtype, "shape": output.standin(told)}
                               for name, output in stage.outputs.items()}
        return told

    def consumers(self, stage, output):
        """Names of the stages that take this output."""
        return [other.name for other in self.stages.values()
                if any((i.stage, i.output) == (stage, output) for i in other.inputs)]

    def ways(self, stage, passing):
        """How each output of a stage goes on. Between two GPU functions as `passing` says; where a
        host function is on either side, through host memory, pinned if `passing` says so. The store
        has all of them, what is for host functions alone in host memory; "store+host" only those
        between GPU functions."""
        between, _, rest = passing.partition("+")
        stored = between.startswith("store") and not rest
        through_host = ("store-host" if stored else "pinned" if "pinned" in passing else
                        "host-place" if between == "host-place" else "host")
        found = {}
        for output in stage.outputs:
            kinds = {self.stages[name].kind for name in self.consumers(stage.name, output)}
            alone = stage.kind == "gpu" and (kinds == {"gpu"} or stored and "gpu" in kinds)
            on_gpu = "gpu" in (stage.kind, *kinds)
            found[output] = between if alone else through_host if on_gpu or stored else "host"
        return found


def read(name):
    """The workflow of this name, or the one in this folder."""
    folder = pathlib.Path(name) if "/" in str(name) else WORKFLOWS / str(name)
    path = folder / "workflow.toml"
    if not path.exists():
        known = sorted(p.parent.name for p in WORKFLOWS.glob("*/workflow.toml"))
        raise WorkflowError(f"no workflow '{name}': there are {', '.join(known) or 'none'}")
    return parse(tomllib.loads(path.read_text()), folder)


def parse(table, folder):
    stages = {}
    for entry in table["stage"]:
        stage = parse_stage(entry, folder, stages)
        stages[stage.name] = stage
    return Workflow(table["name"], table["shape"], table["slo_ms"], table["batch"],
                    tuple(table["batches"]), table["variants"], table["seed"],
                    table.get("counts", {}), stages, folder)


def parse_stage(entry, folder, before):
    outputs = {name: Output(rule["dtype"], tuple(rule["shape"]), rule.get("when"))
               for name, rule in entry.get("outputs", {}).items()}
    inputs = tuple(parse_input(entry["name"], word, before) for word in entry.get("inputs", []))
    names = [each.name for each in inputs]
    if len(set(names)) != len(names):
        raise WorkflowError(f"{entry['name']}: two inputs of one name in {names}")
    if entry["name"] in before or entry["kind"] not in ("host", "gpu"):
        raise WorkflowError(f"{entry['name']}: there twice, or neither host nor gpu")
    return Stage(entry["name"], entry["kind"], folder / entry["program"], inputs, outputs,
                 entry.get("join", False), entry.get("params", {}))


def parse_input(stage, word, before):
    """`STAGE.OUTPUT` or `STAGE.OUTPUT as NAME`."""
    source, _, name = word.partition(" as ")
    producer, _, output = source.strip().partition(".")
    if producer not in before or output not in before[producer].outputs:
        raise WorkflowError(f"{stage}: no stage before it has an output {source}")
    return Input(name.strip() or output, producer, output)


def drawn(name, rule, params, chosen):
    """The counts that one rule adds to `params`."""
    if isinstance(rule, dict):
        each = [negative_binomial(rule, chosen)
                for _ in range(params["batch"] if rule.get("per") == "frame" else 1)]
        return {name: sum(each), f"{name}_each": each}
    if name == "car_share":
        cars = [sum(chosen.random() < rule for _ in range(most)) for most in params["objects_each"]]
        persons = [most - mine for most, mine in zip(params["objects_each"], cars)]
        return {"cars": sum(cars), "cars_each": cars, "persons": sum(persons),
                "persons_each": persons}
    return {name: int(chosen.random() < rule)}


def negative_binomial(rule, chosen):
    """A Poisson count whose mean is itself drawn from a gamma distribution; cut at `most`."""
    mean, variance = rule["negative_binomial_mean"], rule["variance"]
    rate = chosen.gammavariate(mean * mean / (variance - mean), (variance - mean) / mean)
    count, product = 0, chosen.random()
    while product > math.exp(-rate):
        count, product = count + 1, product * chosen.random()
    return min(count, rule["most"])

"""The suites of libraries and frameworks: which programs, what they need, how long they may take,
and running them.

Items run several at once, each with a proxy of its own: no times are compared here, so the
machine's cores are used.
"""
import concurrent.futures
import fnmatch
import glob
import importlib.util
import os
import pathlib
import sys
import threading
import time

import paired
import tubetest

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY_LIMIT_S = 120
# Under other allocators: what asks the driver for memory in its own ways.
MODELS_AGAIN = "resnet18,resnet18_half_channels_last,vit_b_16,swin_t_half,fcn_resnet50"
FEATURES_AGAIN = (
    "graph_of_a_model,graphed_training,graphs_share_a_pool_with_random_numbers,streams_and_events,memory_figures,"
    "out_of_memory_is_survived,copies,tensors_freed_on_other_streams")
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
STREAM_ORDERED = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
# name -> (module that must be importable, script of frameworks/, environment, limit in seconds),
# the longest first
FRAMEWORKS = {
    "torch_features": ("torch", "torch_features.py", {}, 240),
    "torchvision_models": ("torchvision", "torchvision_models.py", {}, 240),
    "timm_models": ("timm", "timm_models.py", {}, 240),
    "transformers_models": ("transformers", "transformers_models.py", {}, 240),
    "training": ("torch", "training.py", {}, 180),
    "training_expandable": ("torch", "training.py", EXPANDABLE, 180),
    "training_malloc_async": ("torch", "training.py", STREAM_ORDERED, 180),
    "features_expandable": ("torch", "torch_features.py", dict(EXPANDABLE,
                                                               ITEM_ONLY=FEATURES_AGAIN), 180),
    "features_malloc_async": ("torch", "torch_features.py",
                              dict(STREAM_ORDERED, ITEM_ONLY=FEATURES_AGAIN), 180),
    "models_expandable": ("torchvision", "torchvision_models.py",
                          dict(EXPANDABLE, ITEM_ONLY=MODELS_AGAIN), 180),
    "models_malloc_async": ("torchvision", "torchvision_models.py",
                            dict(STREAM_ORDERED, ITEM_ONLY=MODELS_AGAIN), 180),
    "cupy": ("cupy", "cupy_cases.py", {}, 180),
    "jax": ("jax", "jax_cases.py", {}, 180),
    "triton": ("triton", "triton_cases.py", {}, 120),
    "numba": ("numba", "numba_cases.py", {}, 120),
}
LIBRARIES = ("cublas", "cublaslt", "cudnn", "cudnn_graph", "cufft", "cusparse", "cusolver",
             "curand", "nvrtc", "nvjitlink", "nccl")


def library_folders():
    """Where NVIDIA's libraries are: the wheels of this Python, then the toolkit."""
    folders = []
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        folders += sorted(glob.glob(os.path.join(place, "*", "lib")))
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return folders + [f for f in (os.path.join(toolkit, "lib64"),) if os.path.isdir(f)]


def importable(module):
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def commands(session, suite):
    """name -> (needed module or None, command, environment, limit): the items of a suite that are
    there."""
    if suite == "libraries":
        folder = session.layout.build / "tests/gpu/libraries"
        built = [(name, folder / f"lib_{name}") for name in LIBRARIES]
        return {
            name: (None, [str(path)], {}, LIBRARY_LIMIT_S) for name, path in built if path.exists()
        }
    return {
        name: (module, [sys.executable, str(HERE / "frameworks" / script)], extra, limit)
        for name, (module, script, extra, limit) in FRAMEWORKS.items()
        if (HERE / "frameworks" / script).exists()
    }


def chosen_cases(options, name, preset):
    """The cases of an item that its own environment and --only ITEM.CASE leave; none named means
    all."""
    patterns = [p for p in options.only if fnmatch.fnmatch(name, p.split(".")[0])]
    named = [p.split(".", 1)[1] for p in patterns if "." in p]
    return named if patterns and len(named) == len(patterns) else [
        c for c in preset.split(",") if c
    ]


def summary(results):
    """An item's one result from those of its cases."""
    kinds = {}
    for r in results:
        kinds[r["result"]] = kinds.get(r["result"], 0) + 1
    bad = kinds.get("DIFFERENT", 0) + kinds.get("FAILED", 0)
    if bad:
        return "DIFFERENT" if kinds.get("DIFFERENT") else "FAILED"
    good = kinds.get("equal", 0) + kinds.get("within native's own difference", 0)
    return "equal" if good else "native fails" if kinds.get("native fails") else "skipped"


class Item:
    """One item's run: a proxy of its own, made anew after a crash."""

    def __init__(self, session, suite, name, command, extra):
        self.session, self.suite, self.name, self.command, self.extra = session, suite, name, command, extra
        self.proxy, self.proxy_logs, self.starts = None, [], 0

    def start_proxy(self):
        self.proxy = self.session.new_proxy(self.name)
        self.at_rest = self.proxy.counts()

    def launch_native(self):
        return self.with_libraries(*self.session.native(self.command))

    def launch_tube(self):
        """Again after a crash: then with a new proxy, for a fault has ended the context of the old
        one."""
        self.starts += 1
        if self.starts > 1:
            self.drop_proxy()
            self.start_proxy()
        return self.with_libraries(*self.session.tube(self.command, self.name, self.proxy))

    def with_libraries(self, command, env):
        env.update(self.extra)
        if self.suite == "libraries":
            env["LD_LIBRARY_PATH"] = ":".join(
                [*(f for f in [env.get("LD_LIBRARY_PATH")] if f), *library_folders()])
        return command, env

    def drop_proxy(self):
        if self.proxy is not None:
            self.proxy_logs.append(("" if self.proxy.alive() else "(died) ") +
                                   self.proxy.log_tail())
            self.proxy.__exit__(None, None, None)
            self.proxy = None

    def leftovers(self):
        """What the item left in its proxy that is not gone soon after its processes are."""
        try:
            counts = self.proxy.counts_back_to(self.at_rest,
                                               5) if self.proxy and self.proxy.alive() else {}
        except (OSError, RuntimeError, ValueError) as error:
            return [f"the proxy does not answer well afterwards: {error}"]
        return [
            f"left behind: {k} {v}" for k, v in counts.items()
            if k != "fds" and v != self.at_rest.get(k)
        ]

    def run(self, limit):
        result = {"item": self.name, "suite": self.suite, "result": "FAILED"}
        begin = time.monotonic()
        only = chosen_cases(self.session.options, self.name, self.extra.get("ITEM_ONLY", ""))
        try:
            self.start_proxy()
            results, native, tube = paired.run_pair(self.launch_native, self.launch_tube,
                                                    self.session.work / f"{self.suite}-{self.name}",
                                                    self.session.limit(limit), only=only)
            result["cases"] = results
            result["result"] = summary(
                results) if results else "native fails" if native.problem else "FAILED"
            result["detail"] = "\n".join(p for p in (native.problem, tube.problem) if p) or (
                "" if results else "no case ran: is there one of this name?")
            if result["result"] != "equal":
                result[
                    "detail"] += f"\nstderr through Tube ends with:\n{tube.stderr_tail()}\nfailing calls when run again:\n{tube.trace}"
            result["notes"] = self.leftovers()
        except Exception as error:  # One item must not end the run.
            result["detail"] = f"{type(error).__name__}: {error}"
        finally:
            self.drop_proxy()
        if result["result"] != "equal" or result.get("detail"):
            result[
                "detail"] = f"{result.get('detail', '')}\nproxy log ends with:\n" + "\n--\n".join(
                    self.proxy_logs)
        result["seconds_item"] = time.monotonic() - begin
        return result


def line(result):
    cases = result.get("cases", [])
    good = sum(r["result"] in ("equal", "within native's own difference") for r in cases)
    bad = [f"{r['case']}: {r['result']}" for r in cases if r["result"] in ("DIFFERENT", "FAILED")]
    return (f"{result['suite']}/{result['item']}: {result['result']}, {good} of {len(cases)} cases "
            f"({result.get('seconds_item', 0):.1f} s){'; ' if bad else ''}{', '.join(bad)}")


def run_suite(session, suite, wanted, done):
    """Runs a suite's items, several at once; `done(result)` is called for each as it ends, from one
    thread at a time."""
    lock = threading.Lock()

    def one(name, module, command, extra, limit):
        skipped = {"item": name, "suite": suite, "cases": [], "result": "skipped"}
        if module and not importable(module):
            result = dict(skipped, result=f"skipped (no {module})")
        elif session.deadline - time.monotonic() < 15:
            result = dict(skipped, result="skipped (no time left in --budget)")
        else:
            result = Item(session, suite, name, command, extra).run(limit)
        with lock:
            print(line(result), flush=True)
            done(result)

    with concurrent.futures.ThreadPoolExecutor(session.options.jobs) as pool:
        waiting = [
            pool.submit(one, name, *rest)
            for name, rest in commands(session, suite).items()
            if wanted(name)
        ]
        for future in waiting:
            future.result()

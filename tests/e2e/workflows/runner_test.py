"""The runner of the example workflows without a GPU: plans, arrivals, the split of a latency, the
dispatcher, and functions that die, fail or fall silent (fake_function.py).

runner_test.py [Class[.test_name]]
"""
import dataclasses
import os
import pathlib
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "examples/workflows/runner"), str(ROOT / "tests/gpu")]
import arms  # noqa: E402
import arrivals  # noqa: E402
import deployment  # noqa: E402
import dispatch  # noqa: E402
import instances  # noqa: E402
import memory  # noqa: E402
import split  # noqa: E402
import workflow  # noqa: E402

NEGATIVE_BINOMIAL = {"negative_binomial_mean": 6, "variance": 18, "most": 32, "per": "frame"}


def stage(name, kind="gpu", inputs=(), outputs=(), **more):
    shapes = {output: {"dtype": "uint8", "shape": ["batch", 16]} for output in outputs}
    return dict({"name": name, "kind": kind, "program": "fake_function.py", "inputs": list(inputs),
                 "outputs": shapes, "params": {"stage": name}}, **more)


def diamond():
    """first -> (left, right) -> last: fan-out, fan-in and conditions."""
    stages = [
        stage("first", "host", outputs=["one", "two"]),
        stage("left", inputs=["first.one"], outputs=["out"]),
        stage("right", inputs=["first.two"], outputs=["out"]),
        stage("last", "host", ["left.out as l", "right.out as r"], join=True)
    ]
    return workflow.parse({"name": "diamond", "shape": "condition", "slo_ms": 1, "batch": 2,
                           "batches": [2], "variants": 4, "seed": 1,
                           "counts": {"objects": NEGATIVE_BINOMIAL, "car_share": 0.6,
                                      "has_text": 0.6}, "stage": stages}, HERE)


class Plans(unittest.TestCase):
    def test_a_plan_is_the_same_every_time(self):
        first, second = diamond().requests(9, 3), diamond().requests(9, 3)
        self.assertEqual(first, second)
        self.assertEqual(first[1].params, first[5].params)
        self.assertNotEqual(first[1].params, first[2].params)
        self.assertEqual([r.variant for r in first], [0, 1, 2, 3, 0, 1, 2, 3, 0])

    def test_a_variant_does_not_depend_on_how_many_are_asked_for(self):
        self.assertEqual(diamond().requests(2, 3), diamond().requests(4, 3)[:2])

    def test_counts_are_negative_binomial_and_cut(self):
        chosen = random.Random(5)
        drawn = [workflow.negative_binomial(NEGATIVE_BINOMIAL, chosen) for _ in range(40000)]
        self.assertAlmostEqual(statistics.mean(drawn), 6, delta=0.1)
        self.assertAlmostEqual(statistics.variance(drawn), 18, delta=0.6)
        self.assertEqual(max(drawn), 32)

    def test_cars_and_persons_are_all_objects(self):
        params = diamond().params(2, 7)
        self.assertEqual(len(params["objects_each"]), 7)
        self.assertEqual(params["cars"] + params["persons"], params["objects"])
        self.assertEqual(sum(params["cars_each"]), params["cars"])

    def test_an_output_without_elements_is_not_there(self):
        output = workflow.Output("float32", ("cars", 3, 224, 224))
        self.assertIsNone(output.standin({"cars": 0}))
        self.assertEqual(output.standin({"cars": 5}), [5, 1504])
        self.assertIsNone(workflow.Output("uint8", (4, 4), "has_text").sizes({"has_text": 0}))

    def test_ways_go_through_host_memory_beside_a_host_function(self):
        wf = diamond()
        self.assertEqual(wf.ways(wf.stages["first"], "ipc"), {"one": "host", "two": "host"})
        self.assertEqual(wf.ways(wf.stages["left"], "ipc+pinned"), {"out": "pinned"})
        chain = workflow.parse(
            dict(name="chain", shape="sequence", slo_ms=1, batch=1, batches=[1], variants=1, seed=1,
                 stage=[stage("a", outputs=["x"]), stage("b", inputs=["a.x"])]), HERE)
        self.assertEqual(chain.ways(chain.stages["a"], "ipc+pinned"), {"x": "ipc"})

    def test_an_input_from_nowhere_is_named(self):
        for wrong in (["first.three"], ["nobody.one"], ["first.one", "first.one"]):
            stages = [stage("first", outputs=["one"]), stage("second", inputs=wrong)]
            with self.assertRaisesRegex(workflow.WorkflowError, "second"):
                workflow.parse(dict(name="w", shape="", slo_ms=1, batch=1, batches=[1], variants=1,
                                    seed=1, stage=stages), HERE)


class Arrivals(unittest.TestCase):
    def test_each_minute_keeps_its_count(self):
        counts, _ = arrivals.trace("azure:7", arrivals.TRACES)
        found, words = arrivals.times("azure:7", 60, window=(0, 20), speedup=20)
        begins = [sum(minute * 3 <= at < minute * 3 + 3 for at in found) for minute in range(20)]
        self.assertEqual(begins, counts[:20])
        self.assertEqual(found, sorted(found))
        self.assertIn("M = 20 minutes from minute 0, S = 20, seed 1", words)

    def test_a_seed_gives_the_same_arrivals_and_another_one_others(self):
        def drawn(seed):
            return arrivals.times("bursty", 10, rate=20, seed=seed)[0]

        self.assertEqual(drawn(3), drawn(3))
        self.assertNotEqual(drawn(3), drawn(4))

    def test_twice_the_speed_is_half_the_time(self):
        slow, _ = arrivals.times("periodic", 1e9, window=(0, 10), speedup=10)
        fast, _ = arrivals.times("periodic", 1e9, window=(0, 10), speedup=20)
        for left, right in zip(slow, fast, strict=True):
            self.assertAlmostEqual(left, 2 * right)

    def test_a_rate_scales_counts_and_keeps_their_shape(self):
        self.assertEqual(arrivals.scaled([0, 10, 30, 0, 60], 10), [0, 1, 3, 0, 6])
        for shape in ("bursty", "periodic", "sporadic", "azure:14", "streambox:periodic"):
            found, _ = arrivals.times(shape, 30, rate=7)
            self.assertEqual(len(found), 210, shape)
            self.assertLess(max(found), 30)

    def test_without_a_window_the_busiest_minutes_are_taken(self):
        self.assertEqual(arrivals.busiest([1, 5, 5, 0, 9, 1], 2), (1, 2))
        self.assertEqual(arrivals.busiest([1, 2], 10), (0, 2))

    def test_poisson_has_its_rate(self):
        found, _ = arrivals.times("poisson", 1000, rate=5)
        self.assertAlmostEqual(len(found), 5000, delta=200)
        self.assertRaises(ValueError, arrivals.times, "poisson", 10)
        self.assertRaises(ValueError, arrivals.times, "lunar", 10)


def stamps(*values):
    return dict(zip(("queued", "start", "inputs", "computed", "outputs"), values))


class Splits(unittest.TestCase):
    def test_parts_sum_to_the_latency_along_the_critical_path(self):
        record = dispatch.Record(1, 1, 100, 1000)
        record.stages = {"first": stamps(110, 120, 121, 200, 250),
                         "left": stamps(255, 260, 300, 600, 620),
                         "right": stamps(255, 256, 270, 300, 310),
                         "last": stamps(630, 650, 700, 990, 1000)}
        self.assertEqual(split.critical_path(diamond(), record), ["first", "left", "last"])
        parts = split.of(diamond(), record)
        self.assertEqual(parts, {"queue": 20 + 10 + 30, "host": 1 + 79 + 290 + 10,
                                 "host_to_function": 50 + 40, "compute": 300,
                                 "function_to_host": 20 + 50, "function_to_function": 0})
        self.assertEqual(sum(parts.values()), 900)

    def test_a_skipped_function_stands_for_the_one_before_it(self):
        record = dispatch.Record(1, 1, 0, 90)
        record.stages = {"first": stamps(0, 1, 2, 3, 70), "left": stamps(71, 72, 73, 74, 75),
                         "last": stamps(80, 81, 82, 83, 90)}
        self.assertEqual(split.critical_path(diamond(), record), ["first", "left", "last"])
        del record.stages["left"]
        self.assertEqual(split.critical_path(diamond(), record), ["first", "last"])
        self.assertEqual(sum(split.of(diamond(), record).values()), 90)

    def test_words_begin_with_the_largest_part(self):
        self.assertEqual(split.words({"queue": 1_000_000, "compute": 3_000_000, "host": 0}),
                         "compute 3.0 ms (75%), queue 1.0 ms (25%)")


class Memory(unittest.TestCase):
    def test_a_mean_is_over_time(self):
        found = memory.summary([(0.0, 10), (1.0, 20), (4.0, None), (5.0, 20)])
        self.assertEqual(found, {"mean": 18.0, "peak": 20, "samples": 3})
        self.assertIsNone(memory.summary([(0.0, None)]))

    def test_a_sampler_reads_at_least_once(self):
        self.assertEqual(memory.Sampler(lambda: 7, 60).start().stop()["peak"], 7)


class Places(unittest.TestCase):
    def places(self, how, copies):
        found = instances.place(diamond(), dict.fromkeys(diamond().stages, copies), [4, 5], how)
        return {(stage.name, copy): device for stage, copy, device in found}

    def test_packed_keeps_a_copy_of_all_functions_on_one_device(self):
        for (_, copy), device in self.places("packed", 2).items():
            self.assertEqual(device, [4, 5][copy])

    def test_spread_puts_functions_that_follow_each_other_apart(self):
        found = self.places("spread", 1)
        self.assertNotEqual(found["left", 0], found["right", 0])
        self.assertEqual(set(self.places("spread", 2).values()), {4, 5})


class Copy:
    """Plays an instance: keeps what it is told."""

    def __init__(self, wf, name, number=0):
        self.stage, self.number, self.flight = wf.stages[name], number, None
        self.sent, self.released = [], []

    def send(self, message):
        self.sent.append(message)

    def release(self, key):
        self.released.append(key)

    def idle(self):
        pass

    def answers(self, dispatcher, result=None, nulls=()):
        """The answer to what it was told last."""
        request = self.sent[-1]
        outputs = {name: None if name in nulls else {"key": f"{self.stage.name} {name}"}
                   for name in request["outputs"]}
        at = request["id"] + 1
        dispatcher.done(self, {"id": request["id"], "outputs": outputs, "result": result,
                               "stamps": dict.fromkeys(("start", "inputs", "computed",
                                                        "outputs"), at)})


class Dispatching(unittest.TestCase):
    def begin(self, copies=1, requests=1):
        self.wf = diamond()
        self.of = {name: [Copy(self.wf, name, k) for k in range(copies)] for name in self.wf.stages}
        self.dispatcher = dispatch.Dispatcher(self.wf, sum(self.of.values(), []), "host")
        for request in self.wf.requests(requests):
            self.dispatcher.submit(request, 5)

    def answers(self, name, copy=0, **how):
        self.of[name][copy].answers(self.dispatcher, **how)

    def test_fan_out_and_fan_in(self):
        self.begin()
        self.answers("first")
        self.answers("right")
        self.assertEqual(self.of["last"][0].sent, [])
        self.answers("left")
        self.assertEqual(set(self.of["last"][0].sent[0]["inputs"]), {"l", "r"})
        self.answers("last", result="good")
        record, = self.dispatcher.finished
        self.assertEqual((record.result, record.error, record.arrived_ns), ("good", None, 5))
        self.assertEqual(set(record.stages), set(self.wf.stages))

    def test_an_untaken_edge_skips_what_hangs_on_it(self):
        self.begin()
        self.answers("first", nulls=["one"])
        self.assertEqual(self.of["left"][0].sent, [])
        self.answers("right")
        self.assertIsNone(self.of["last"][0].sent[0]["inputs"]["l"])
        self.answers("last", result="good")
        self.assertEqual(set(self.dispatcher.finished[0].stages), {"first", "right", "last"})

    def test_a_join_runs_with_nothing_at_all(self):
        self.begin()
        self.answers("first", nulls=["one", "two"])
        self.assertEqual(self.of["last"][0].sent[0]["inputs"], {"l": None, "r": None})

    def test_an_output_is_released_once_its_consumers_have_answered(self):
        self.begin()
        self.answers("first")
        self.answers("left")
        self.assertEqual(self.of["first"][0].released, ["first one"])
        self.answers("right")
        self.assertEqual(self.of["left"][0].released, [])
        self.answers("last", result="good")
        self.assertEqual(self.of["left"][0].released, ["left out"])

    def test_copies_take_the_queue_in_order(self):
        self.begin(copies=2, requests=4)
        first, second = self.of["first"]
        self.assertEqual([c.sent[0]["id"] for c in (first, second)], [0, 1])
        self.answers("first", 1)
        self.assertEqual(second.sent[1]["id"], 2)
        self.assertEqual(self.of["left"][1].sent[0]["id"], 1)  # The copy of the same number.

    def test_a_failed_request_goes_no_further_and_holds_nothing(self):
        self.begin(requests=2)
        self.answers("first")
        self.dispatcher.failed(self.of["left"][0], "cannot")
        self.answers("right")
        record, = self.dispatcher.finished
        self.assertRegex(record.error, "cannot")
        self.assertEqual(self.of["right"][0].released, ["right out"])
        self.assertEqual(self.of["last"][0].sent, [])
        self.assertEqual(self.of["first"][0].sent[-1]["id"], 1)

    def test_what_is_abandoned_ends_when_its_copies_answer(self):
        self.begin(requests=2)
        self.dispatcher.abandon("late")
        self.assertEqual([r.id for r in self.dispatcher.finished], [1])
        self.answers("first")
        self.assertEqual([r.error for r in self.dispatcher.finished], ["late: at first"] * 2)
        self.assertEqual(self.of["left"][0].sent, [])
        self.assertEqual(len(self.of["first"][0].released), 2)


class PlainArm:
    """Starts functions as they are."""

    def __init__(self, folder):
        self.folder, self.count, self.set = folder, 0, types.SimpleNamespace(work=folder)

    def spawn(self, command, extra_env=None):
        self.count += 1
        return arms.Worker(command[-1], command, dict(os.environ, **(extra_env or {})),
                           str(self.folder / str(self.count)))

    def servers(self):
        return []

    def confirm(self, count):
        self.confirmed = count


def soon(seconds=60):
    return time.monotonic() + seconds


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.arm = PlainArm(pathlib.Path(folder.name))
        self.fds = len(os.listdir("/proc/self/fd"))

    def tearDown(self):
        self.assertEqual(len(os.listdir("/proc/self/fd")), self.fds)

    def started(self, **options):
        made = deployment.Deployment(diamond(), self.arm, "host", **options)
        self.addCleanup(lambda: made.instances and made.close(0))
        made.start(soon())
        return made

    def test_open_and_closed_loop(self):
        with self.started() as running:
            requests = asked(12)
            for records in (running.closed(requests, 3, soon()),
                            running.replay(requests, [0.001 * i for i in range(12)], soon())):
                self.assertEqual([r.id for r in records], list(range(12)))
                self.assertEqual({r.result for r in records}, {f"{v} of l,r" for v in range(4)})
                for record in records:
                    self.assertEqual(sum(split.of(running.wf, record).values()),
                                     record.ended_ns - record.arrived_ns)
            self.assertEqual(self.arm.confirmed, 2)

    def test_copies_share_the_work(self):
        with self.started(copies={"left": 3}) as running:
            self.assertEqual(len(running.pids("gpu")), 4)
            records = running.closed(asked(40), 8, soon())
            self.assertEqual({r.stages["right"]["instance"] for r in records}, {0})
            self.assertLessEqual({r.stages["left"]["instance"] for r in records}, {0, 1, 2})

    def test_conditions(self):
        with self.started() as running:
            for record in running.closed(asked(4, first="leave one"), 2, soon()):
                self.assertEqual(record.result, f"{record.variant} of r")

    def test_a_function_that_fails_is_named_in_the_record(self):
        with self.started() as running:
            for record in running.closed(asked(3, right="fail"), 3, soon()):
                self.assertRegex(record.error, r"right\[0\] \(pid \d+\): fake: cannot")

    def test_a_function_that_dies_is_named_with_its_last_words(self):
        with self.assertRaisesRegex(workflow.WorkflowError,
                                    r"(?s)left\[0\].* ended with 1;.*this is how it ends"):
            with self.started() as running:
                running.closed(asked(3, left="die"), 1, soon())

    def test_a_function_that_falls_silent_is_named(self):
        with self.started() as running:
            running.dispatcher.submit(asked(1, right="hang")[0], time.monotonic_ns())
            while {i.stage.name for i in running.instances if i.flight} != {"right"}:
                running.pump(soon())
            running.patience_s = 0
            with self.assertRaisesRegex(workflow.WorkflowError, r"right\[0\].* has said nothing"):
                running.through(soon())
            running.close(0)

    def test_a_function_that_is_never_ready_is_named(self):
        made = deployment.Deployment(diamond(), self.arm, "host",
                                     environment={"FAKE_START": "hang"})
        with self.assertRaisesRegex(workflow.WorkflowError, r"first\[0\].* was not ready in time"):
            with made:
                made.start(soon(0))

    def test_requests_behind_the_deadline_say_so(self):
        with self.started() as running:
            for records in (running.replay(asked(3), [0, 3600, 7200], soon(-1)),
                            running.closed(asked(3), 1, soon(-1))):
                self.assertEqual([(r.id, r.error) for r in records],
                                 [(i, "never sent") for i in range(3)])

    def test_nothing_is_left_when_the_runner_is_killed(self):
        code = ("import os, signal, runner_test as t\n"
                "case = t.Processes(); case.setUp(); made = case.started()\n"
                "print(case.arm.folder, made.keeper.process.pid, *made.pids(), flush=True)\n"
                "os.kill(os.getpid(), signal.SIGKILL)\n")
        done = subprocess.run([sys.executable, "-c", code], cwd=HERE, stdout=subprocess.PIPE,
                              text=True, check=False)
        self.assertEqual(done.returncode, -signal.SIGKILL)
        folder, *pids = done.stdout.split()
        self.assertEqual(len(pids), 5)
        for pid in map(int, pids):
            self.assertTrue(ended(pid), pid)
        self.assertFalse(pathlib.Path(folder).exists())


def asked(count, **behave):
    """Requests whose functions behave in this way."""
    return [dataclasses.replace(request, params=dict(request.params, behave=behave))
            for request in diamond().requests(count)]


def ended(pid):
    """Waits until a process is gone, a minute at most."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    gone = select.select([fd], [], [], 60)[0]
    os.close(fd)
    return bool(gone)


if __name__ == "__main__":
    unittest.main()

"""Requests through the functions of a workflow: one queue per function, conditions, fan-out and
fan-in, and when what was handed on may go.

A request is in the queue of a function once each of its inputs is there or known to be null. The
first free copy takes the head of the queue; a copy works on one request at a time. A producer keeps
an output until every consumer has answered. A request whose function fails goes no further: its
record names the function, what it held is released, the others go on.

The dispatcher neither waits nor reads: deployment.py does, and calls it in one thread.
"""
import collections
import dataclasses
import time


@dataclasses.dataclass
class Record:
    """What became of a request. `stages`: name -> queued, start, inputs, computed, outputs (ns of
    the machine's monotonic clock), instance, bytes; a skipped stage is not among them."""
    id: int
    variant: int
    arrived_ns: int
    ended_ns: int = 0
    result: str = None
    error: str = None
    stages: dict = dataclasses.field(default_factory=dict)


class Flight:
    """A request under way. `pins`: function -> copy that must take it; of the others any may,
    first the one that is numbered like the copy that had it before (`home`)."""

    def __init__(self, request, record, pins):
        self.request, self.record, self.pins, self.home = request, record, pins or {}, 0
        self.decided, self.running = set(), 0  # stages queued or skipped; copies at work
        self.outputs = {}  # (stage, output) -> handle, or None for null
        self.held = {}  # (stage, output) -> [producer's instance, key, consumers yet to answer]


class Dispatcher:
    """`instances`: things with stage, number, flight, send(message), release(key) and idle()."""

    def __init__(self, wf, instances, passing, standin=False, now=time.monotonic_ns):
        self.wf, self.standin, self.now = wf, standin, now
        self.queues = {name: collections.deque() for name in wf.stages}
        self.copies = {name: [i for i in instances if i.stage.name == name] for name in wf.stages}
        self.ways = {name: wf.ways(stage, passing) for name, stage in wf.stages.items()}
        self.users = {(name, output): wf.consumers(name, output)
                      for name, stage in wf.stages.items() for output in stage.outputs}
        self.flights, self.finished = set(), []

    def submit(self, request, arrived_ns, pins=None):
        flight = Flight(request, Record(request.id, request.variant, arrived_ns), pins)
        self.flights.add(flight)
        self.advance(flight)

    def advance(self, flight):
        """Queues or skips each stage whose inputs are known; a request with nothing left to do has
        ended."""
        for stage in self.wf.stages.values():
            sources = [(i.stage, i.output) for i in stage.inputs]
            if stage.name in flight.decided or any(s not in flight.outputs for s in sources):
                continue
            flight.decided.add(stage.name)
            there = any(flight.outputs[source] for source in sources)
            if sources and not there and not stage.join:
                flight.outputs.update({(stage.name, output): None for output in stage.outputs})
            elif not flight.record.error:
                flight.record.stages[stage.name] = {"queued": self.now()}
                flight.running += 1
                self.queues[stage.name].append(flight)
                self.serve(stage.name)
        if flight.running == 0 and flight in self.flights:
            self.end(flight)

    def serve(self, name):
        """Hands the head of a queue to a free copy, as long as there are both."""
        queue = self.queues[name]
        while queue:
            flight, free = queue[0], [i for i in self.copies[name] if i.flight is None]
            if name in flight.pins:
                free = [i for i in free if i.number == flight.pins[name]]
            if not free:
                return
            queue.popleft()
            self.hand(flight, min(free, key=lambda i: (i.number != flight.home, i.number)))

    def hand(self, flight, copy):
        stage = copy.stage
        inputs = {each.name: flight.outputs[each.stage, each.output] for each in stage.inputs}
        copy.flight, copy.since, flight.home = flight, time.monotonic(), copy.number
        flight.record.stages[stage.name]["instance"] = copy.number
        copy.send({
            "id": flight.request.id,
            "inputs": inputs,
            "params": self.wf.stage_params(stage, flight.request.params, self.standin),
            "outputs": self.ways[stage.name]
        })

    def done(self, copy, answer):
        """A copy has finished its part of a request."""
        flight, name = copy.flight, copy.stage.name
        flight.record.stages[name].update(answer["stamps"], bytes=answer.get("bytes", {}))
        if answer.get("result") is not None:
            flight.record.result = answer["result"]
        for output in copy.stage.outputs:
            handle = answer["outputs"].get(output)
            flight.outputs[name, output] = handle
            if handle:
                flight.held[name, output] = [copy, handle["key"], set(self.users[name, output])]
        self.answered(copy)

    def failed(self, copy, error):
        """A copy could not do its part of a request."""
        flight = copy.flight
        flight.record.error = flight.record.error or f"{copy}: {error}"
        del flight.record.stages[copy.stage.name]
        self.withdraw(flight)
        self.answered(copy)

    def answered(self, copy):
        flight, copy.flight = copy.flight, None
        flight.running -= 1
        self.advance(flight)
        self.serve(copy.stage.name)
        self.give_back(flight, copy.stage.name)  # Late: whoever waits for work has it by now.
        if copy.flight is None:
            copy.idle()

    def give_back(self, flight, consumer):
        """Releases what nobody waits for any more, now that `consumer` has answered."""
        for source, (producer, key, waiting) in list(flight.held.items()):
            waiting.discard(consumer)
            if not waiting:
                del flight.held[source]
                producer.release(key)

    def withdraw(self, flight):
        """Takes a request out of every queue: it goes no further."""
        for name, queue in self.queues.items():
            while flight in queue:
                queue.remove(flight)
                flight.running -= 1
                flight.record.stages.pop(name, None)

    def end(self, flight):
        """Nothing of it runs: the record is whole, and what it still held goes."""
        self.flights.discard(flight)
        for producer, key, _ in flight.held.values():
            producer.release(key)
        flight.held.clear()
        ends = [stamps["outputs"] for stamps in flight.record.stages.values()]
        flight.record.ended_ns = self.now() if flight.record.error else max(ends)
        self.finished.append(flight.record)

    def abandon(self, why):
        """No request goes any further; those that a copy works on end when it answers."""
        for flight in list(self.flights):
            at = [name for name, seen in flight.record.stages.items() if "outputs" not in seen]
            flight.record.error = flight.record.error or f"{why}: at {' and '.join(at)}"
            self.withdraw(flight)
            if flight.running == 0:
                self.end(flight)

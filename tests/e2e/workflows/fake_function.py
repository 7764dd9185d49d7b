"""A function that speaks the protocol of examples/workflows/lib/serving.py and computes nothing:
its outputs' handles and its result say what it was asked. Standard library only, so it starts in a
moment.

`params["behave"]` names a stage and what it does there instead of answering: die, fail, hang,
leave OUTPUT out. FAKE_START=hang: it never becomes ready.
"""
import json
import os
import sys
import time


def say(kind, **values):
    print(f"@{kind} {json.dumps(values)}", flush=True)


def answer(request):
    params, stamps = request["params"], {}
    for name in ("start", "inputs", "computed", "outputs"):
        stamps[name] = time.monotonic_ns()
    behave = params.get("behave", {}).get(params["stage"], "")
    if behave == "die":
        sys.exit("fake: this is how it ends")
    if behave == "hang":
        sys.stdin.readline()
        os.read(0, 1 << 16)
    if behave == "fail":
        say("failed", id=request["id"], error="fake: cannot")
        return
    outputs = {name: {"way": way, "key": f"{os.getpid()} {request['id']} {name}"}
               for name, way in request["outputs"].items()}
    for name in behave.split()[1:]:
        outputs[name] = None
    there = sorted(name for name, handle in request["inputs"].items() if handle)
    say("done", id=request["id"], outputs=outputs, stamps=stamps, bytes={"in": {}, "out": {}},
        **({} if outputs else {"result": f"{params['variant']} of {','.join(there)}"}))


def main():
    print("a word of its own", flush=True)
    if os.environ.get("FAKE_START") == "hang":
        sys.stdin.read()
    say("ready", pid=os.getpid(), seconds=0)
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("end"):
            return
        if "id" in request:
            answer(request)


main()

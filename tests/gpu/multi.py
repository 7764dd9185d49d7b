"""The suite of what needs several processes or GPUs: each script starts its own processes, all of
one arm; what it prints is compared.

A script exits with 77 when the machine has not what it needs, after one line that says so. Both
arms run one after the other: what hands GPU memory around uses names (sockets, shared memory) that
two arms at once might share.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import probe
import session as sessions
import tubetest

# name -> (GPUs it needs, limit in seconds)
SCRIPTS = {
    "torch_handover": (1, 120),
    "two_gpus": (2, 90),
    "nccl_within": (2, 120),
    "nccl_between": (2, 200),
}


def script(name):
    return pathlib.Path(sessions.HERE / "items" / f"{name}.py")


def names(session):
    return [name for name in SCRIPTS if script(name).exists()]


def run_group(command, env, timeout_s):
    """tubetest.run_program for a program that starts others: what outlasts the time goes together,
    no child stays behind."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=err, start_new_session=True)
        try:
            code = process.wait(max(0.1, timeout_s))
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
        texts = [stream.seek(0) or stream.read().decode(errors="replace") for stream in (out, err)]
    return tubetest.Outcome(code, *texts, time.monotonic() - begin)


def keep_whole(folder, name, native, tube, proxy):
    """What both arms and the proxy said, beside the report: its detail holds the ends only."""
    if folder:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        proxy_log = proxy.log_path.read_text(errors="replace") if proxy.log_path.exists() else ""
        for part, text in (("native", native.out + native.err), ("tube", tube.out + tube.err),
                           ("proxy", proxy_log)):
            pathlib.Path(folder, f"{name}.{part}.log").write_text(text)


def one(session, name, gpus):
    needed, limit = SCRIPTS[name]
    result = {"item": name, "suite": "multi", "result": "FAILED"}
    if gpus < needed:
        return dict(result, result=f"skipped ({needed} GPUs needed, {gpus} here)")
    command = [sys.executable, str(script(name))]
    begin = time.monotonic()
    proxy = None
    try:
        native = run_group(*session.native(command), session.limit(limit) - time.monotonic())
        proxy = session.new_proxy(name, gpus="" if needed > 1 else "0")
        tube = run_group(*session.tube(command, name, proxy),
                         session.limit(limit) - time.monotonic())
        result.update(seconds_native=native.seconds, seconds_tube=tube.seconds)
        both = f"exit codes {native.code} and {tube.code}\nnative:\n{native.out[-1500:]}\n{native.err[-1500:]}\n" \
               f"Tube:\n{tube.out[-1500:]}\n{tube.err[-1500:]}\nproxy log ends with:\n{proxy.log_tail(15)}"
        if native.code == tubetest.SKIP:
            result.update(result="skipped", detail=native.out.strip())
        elif native.code != 0:
            result.update(result="native fails", detail=both)
        elif (native.code, native.out) == (tube.code, tube.out):
            result["result"] = "equal"
        else:
            result.update(result="DIFFERENT", detail=both)
            keep_whole(session.options.out, name, native, tube, proxy)
    except Exception as error:  # One item must not end the run.
        result["detail"] = f"{type(error).__name__}: {error}\n{proxy.log_tail() if proxy else ''}"
    finally:
        if proxy is not None:
            proxy.__exit__(None, None, None)
    result["seconds_item"] = time.monotonic() - begin
    return result


def run_suite(session, chosen, done):
    gpus = probe.gpu_count(session.driver)
    for name in names(session):
        if chosen(name):
            result = one(session, name, gpus)
            print(f"multi/{name}: {result['result']} ({result.get('seconds_item', 0):.1f} s)",
                  flush=True)
            done(result)

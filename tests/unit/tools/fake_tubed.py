#!/usr/bin/env python3
"""A proxy for the tests of tubectl: speaks the control protocol and nothing else; what it says
comes from the environment.

TUBE_FAKE_VERSION, TUBE_FAKE_FAULT (text of the fault that ended its context), TUBE_FAKE_FAIL (dies
at start with this line), TUBE_FAKE_BEATEN (the same, when another proxy serves in its place),
TUBE_FAKE_ENDS (hangs up at the second question and ends), TUBE_FAKE_STATUS (the JSON answer to
status and ps); every start is a line in TUBE_FAKE_STARTS.
"""
import argparse
import json
import os
import pathlib
import socket
import sys

parser = argparse.ArgumentParser()
for flag in ("--workflow", "--backend", "--gpus", "--driver", "--sim"):
    parser.add_argument(flag)
parser.add_argument("--copy-policy", default="deadlines")
parser.add_argument("--ready-fd", type=int)
args = parser.parse_args()
with open(os.environ["TUBE_FAKE_STARTS"], "a") as starts:
    starts.write(f"{os.getpid()} {os.getsid(0)} {args.workflow}\n")
if os.environ.get("TUBE_FAKE_FAIL"):
    sys.exit(os.environ["TUBE_FAKE_FAIL"])
path = pathlib.Path(os.environ["TUBE_DIR"], args.workflow + ".ctl")
path.unlink(missing_ok=True)
server = socket.socket(socket.AF_UNIX)
server.bind(str(path))
server.listen(64)
if not os.environ.get("TUBE_FAKE_BEATEN"):
    os.write(args.ready_fd, b"1")
elif os.fork():
    sys.exit(os.environ["TUBE_FAKE_BEATEN"])
os.close(args.ready_fd)
stopping, questions = False, 0
while not stopping:
    client, _ = server.accept()
    with client, client.makefile("rw") as stream:
        line = stream.readline()
        questions += 1
        if os.environ.get("TUBE_FAKE_ENDS") and questions == 2:
            break
        verb = json.loads(line)["verb"] if line else ""
        answer = {
            "ok": True,
            "version": os.environ.get("TUBE_FAKE_VERSION", "0.2.0"),
            "pid": os.getpid(),
            "backend": os.environ.get("TUBE_FAKE_BACKEND") or
                       (args.backend if args.backend != "auto" else "driver"),
            "gpus_asked": args.gpus or "",
            "copy_policy": args.copy_policy,
            "faults": [{"gpu": 0, "text": os.environ["TUBE_FAKE_FAULT"]}] if os.environ.get("TUBE_FAKE_FAULT") else []
        }
        if verb in ("status", "ps"):
            answer.update(json.loads(os.environ.get("TUBE_FAKE_STATUS", "{}")))
        elif verb == "stop":
            stopping = True
        elif verb != "ping":
            answer = {"ok": False, "error": f"unknown verb {verb}"}
        stream.write(json.dumps(answer) + "\n")
path.unlink(missing_ok=True)

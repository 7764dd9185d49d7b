#!/usr/bin/env python3
"""A process that goes on with one attack on a proxy's sockets until it is killed; bench/attacks runs
it beside a bystander. "begun" is said once all of the attack has been done once.

  attacker.py KIND DATA CONTROL BROKER [PROGRAM]    sockets' names, BROKER without its NUL byte;
  PROGRAM: tests/e2e/hostile/hostile, for the kind `clients`
"""
import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time

SILENT = 200  # connections that never greet
BROKER_MOST = 4096
GARBAGE_SIZES = (384, 10, 5000)
PAUSE_S = 0.01  # where the other side takes nothing for now
CLIENTS_AT_ONCE = 4


def begun():
    print("begun", flush=True)


def connected(kind, name):
    """A connection, or None while nobody takes it."""
    made = socket.socket(socket.AF_UNIX, kind)
    made.setblocking(False)
    try:
        made.connect(name)
    except OSError:
        made.close()
        return None
    return made


def closed(connection):
    """Whether the other side has hung up; what it says is dropped."""
    try:
        return connection.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def hold_many(kind, name, most):
    """So many connections that say nothing; who is turned away comes again."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    held, watch, told = {}, select.poll(), False
    while True:
        fresh = connected(kind, name) if len(held) < most else None
        if fresh is not None:
            held[fresh.fileno()] = fresh
            watch.register(fresh, select.POLLIN)
            continue
        if not told:
            begun()
            told = True
        for descriptor, _ in watch.poll(1000 * PAUSE_S):
            if closed(held[descriptor]):
                watch.unregister(descriptor)
                held.pop(descriptor).close()


def ask_and_not_read(name):
    """Requests without end on one control connection whose answers stay where they are."""
    told = False
    while True:
        slow = connected(socket.SOCK_STREAM, name)
        if slow is None:
            time.sleep(PAUSE_S)
            continue
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        with contextlib.suppress(OSError):
            while True:
                try:
                    slow.send(b'{"verb":"status"}\n' * 200)
                except BlockingIOError:
                    if not told:
                        begun()
                        told = True
                    time.sleep(PAUSE_S)
        slow.close()


def greet_with_garbage(name, number):
    """A line in the proxy's log; descriptors come with every second one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made, contextlib.suppress(OSError):
        made.settimeout(5)
        made.connect(name)
        body = os.urandom(GARBAGE_SIZES[number % len(GARBAGE_SIZES)])
        socket.send_fds(made, [body], [0] * (number % 2 * 60))
        made.recv(1)


def log_lines(name):
    number = 0
    while True:
        greet_with_garbage(name, number)
        number += 1
        if number == 1:
            begun()


def short_clients(name, program):
    """Programs that come, compute and go, programs that are killed while they are starting or as
    soon as they are there, and garbage between them."""
    number = 0
    while True:
        comers = [subprocess.Popen([program, scene], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                  for scene in ("compute", "stay") * (CLIENTS_AT_ONCE // 2)]
        for _ in range(20):
            greet_with_garbage(name, number)
            number += 1
        for index, comer in enumerate(comers):
            if index % CLIENTS_AT_ONCE < 3:  # the last one wherever it is by now
                comer.stdout.readline()
            comer.send_signal(signal.SIGKILL if index % 2 else 0)
            comer.stdin.close()
            comer.wait()
            comer.stdout.close()
        if number == 20:
            begun()


def main():
    kind, data, control, broker, *program = sys.argv[1:]
    attacks = {
        "silent": lambda: hold_many(socket.SOCK_SEQPACKET, data, SILENT),
        "control": lambda: ask_and_not_read(control),
        "broker": lambda: hold_many(socket.SOCK_SEQPACKET, "\0" + broker, BROKER_MOST),
        "log": lambda: log_lines(data),
        "clients": lambda: short_clients(data, *program),
    }
    attacks[kind]()


if __name__ == "__main__":
    main()

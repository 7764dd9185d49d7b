"""What the tests of launches.cc share: a program of it, and the clock of the simulated GPU."""
import socket
import subprocess

import tubetest


class Client:
    """A program that talks by lines. `settings`: of its environment."""

    def __init__(self, test, proxy, *words, **settings):
        layout = proxy.layout
        env = {**tubetest.environment(layout, "preload", "sim", proxy), **settings}
        program = layout.build / "tests/e2e/launches/launches"
        self.process = subprocess.Popen([program, *map(str, words)], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        test.addCleanup(self.end)

    def hear(self):
        said = self.process.stdout.readline().rstrip("\n")
        while said.startswith("cu"):
            assert "CUDA_SUCCESS" in said, said
            said = self.process.stdout.readline().rstrip("\n")
        return said

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def took_ms(self):
        word, took = self.hear().split()
        assert word == "took", word
        return float(took)

    def step_ms(self):
        self.say("go")
        return self.took_ms()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(60)


def ready(test, proxy, *words, **settings):
    """A client that has said so."""
    client = Client(test, proxy, *words, **settings)
    test.assertEqual(client.hear(), "ready")
    return client


def finish(test, clients):
    """Stops those that run until they are told to."""
    for client in clients:
        client.say("stop")
    for client in clients:
        test.assertEqual(client.hear(), "done")


class Clock:
    """Of the simulated GPU."""

    def __init__(self, test, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rw")
        test.addCleanup(self.socket.close)
        test.addCleanup(self.lines.close)

    def ask(self, line):
        self.lines.write(line + "\n")
        self.lines.flush()
        return self.lines.readline()

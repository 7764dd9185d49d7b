#!/usr/bin/env python3
"""Starts a proxy, lets mutate_records send two thousand mutated records into it, and checks that
the proxy stays.

Afterwards it must still run, answer its control socket, serve an ordinary program correctly, and
have freed what the hostile sessions owned. Meant for the AddressSanitizer build, whose reports end
the proxy; works in every build.

  mutate_records.py MUTATOR [--build DIR] [--count N] [--seed N]
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import tubetest  # noqa: E402

SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:handle_segv=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("mutator")
    parser.add_argument("--build")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    layout = tubetest.Layout(options.build)
    layout.require(layout.tubed, layout.sim / "libcuda.so.1")
    with tubetest.Proxy(layout, "sim", extra_env=SANITIZERS) as proxy:
        start = proxy.counts()
        outcome = tubetest.run_program([
            options.mutator,
            str(proxy.dir / f"{proxy.workflow}.sock"),
            str(options.count),
            str(options.seed)
        ], tubetest.base_environment(), 400)[0]
        print(outcome.out.strip())
        if outcome.err:
            print("\n".join(outcome.err.splitlines()[-20:]))
        if not proxy.alive():
            print(
                f"the proxy died ({proxy.process.returncode}); seed {options.seed}; its log ends with:\n{proxy.log_tail(80)}"
            )
            return 1
        if outcome.code != 0:
            print(
                f"the mutator ended with {outcome.code}; the proxy's log ends with:\n{proxy.log_tail(30)}"
            )
            return 1
        end = proxy.counts_back_to(start)
        left = {k: (start[k], end[k]) for k in start if k != "fds" and start[k] != end[k]}
        if left:
            print(f"left behind (before, after): {left}")
            return 1
        if proxy.stop() != 0:
            print(f"tubed did not end with 0 on SIGTERM:\n{proxy.log_tail(60)}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

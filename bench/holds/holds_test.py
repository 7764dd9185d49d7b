"""That holds tells ok, waits and holds apart: a few scenarios on the simulated GPU, which answers
these as an H200 does. No times are compared.

holds_test.py --build DIR
"""
import argparse
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
# What goes on is never this slow, however busy the machine. Each answer but `ok` takes as long, or
# three times.
PATIENCE_S = "2"
LIMIT_S = "60"


class Holds(unittest.TestCase):
    def run_lines(self, *lines, gpus=1):
        command = [
            str(LAYOUT.build / "bench/holds/holds"), "--patience", PATIENCE_S, "--limit", LIMIT_S,
            "-"
        ]
        env = dict(tubetest.environment(LAYOUT, "native", "sim"), TUBE_SIM_COUNT=str(gpus))
        out = subprocess.run(command, input="".join(line + "\n" for line in lines), env=env,
                             capture_output=True, text=True, timeout=110)
        return out.returncode, out.stdout.splitlines()

    def expect(self, answers, **how):
        lines = [
            " ".join(word if word.startswith("CUDA_") else word.split("=")[0]
                     for word in line.split())
            for line in answers
        ]
        self.assertEqual(self.run_lines(*lines, **how), (0, answers))

    def test_answers(self):
        self.expect([
            "# a comment",
            "module:all kernel:plain launch:plain sync [ memset=ok kernel:second=holds launch:second=ok ]",
            "module:small kernel:plain launch:plain sync module:prints [ launch:plain=holds launch:plain=ok ]",
            "module:all kernel:plain launch:plain sync [ 3*upload=ok module:small=waits ]",
            "CUDA_MODULE_LOADING=EAGER module:all kernel:plain launch:plain sync [ 2*kernel:second=ok ] kernel:shared",
        ])

    def test_a_wait_for_work_in_progress_ends_by_itself(self):
        self.expect([
            "module:works kernel:works kernel:plain launch:plain sync wait_for_work:works busy module:small idle launch:plain sync",
        ])

    def test_beside_a_call_that_stands(self):
        self.expect([
            "module:all kernel:plain library:all sync [ standing:library_kernel:second launch:plain=waits ]",
            "library:all gpu:1 module:all kernel:plain launch:plain sync gpu:0 [ standing:library_kernel:second gpu:1=ok launch:plain=ok gpu:0=ok ]",
        ], gpus=2)

    def test_scenarios_that_fail(self):
        code, out = self.run_lines("launch:plain sync", "jump", "module:small kernel:prints",
                                   "memset [ upload", "[ standing:upload", "gpu:1")
        self.assertEqual(code, 1)
        self.assertEqual(out, [
            "launch:plain (no kernel of this name was looked up)",
            "jump (no such word; holds --help lists them)",
            "module:small kernel:prints (CUDA_ERROR_NOT_FOUND)", "memset [ upload=ok",
            "[ standing:upload (it does not stand)", "gpu:1 (CUDA_ERROR_INVALID_DEVICE)"
        ])

    def test_steps_beside_streams_that_stand(self):
        program = str(LAYOUT.build / "bench/holds/standing")
        out = subprocess.run([program, "2"], env=tubetest.environment(LAYOUT, "native", "sim"),
                             capture_output=True, text=True, timeout=110, check=True)
        lines = out.stdout.splitlines()
        self.assertEqual([line.split(":")[0] for line in lines],
                         ["standing  0", "standing  1", "standing  2"])
        for line in lines:
            self.assertRegex(line, r": p50 [1-9][0-9.]* p90 [0-9.]+ p99 [0-9.]+ max [0-9.]+ us$")

    def test_compiles_beside_requests(self):
        program = str(LAYOUT.build / "bench/holds/compiling")
        out = subprocess.run([program, "1"], env=tubetest.environment(LAYOUT, "native", "sim"),
                             capture_output=True, text=True, timeout=110, check=True)
        rows = [line for line in out.stdout.splitlines()[1:] if "bytes of machine" not in line]
        self.assertEqual(len(rows), 15 + 15 + 17)
        for row in rows:
            self.assertRegex(row, r" +[1-9][0-9]* +[0-9.]+ +[1-9][0-9]*( +[0-9.]+){4}$")

    def test_what_the_linker_refuses_a_load_refuses(self):
        program = str(LAYOUT.build / "bench/holds/refused")
        out = subprocess.run([program], env=tubetest.environment(LAYOUT, "native", "sim"),
                             capture_output=True, text=True, timeout=110, check=True)
        same = [line for line in out.stdout.splitlines() if line.endswith("the same")]
        self.assertGreater(len(same), 100)
        self.assertIn("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "".join(same))

    def test_every_scenario_has_known_words(self):
        program = str(LAYOUT.build / "bench/holds/holds")
        out = subprocess.run([program, "--help"], env=tubetest.environment(LAYOUT, "native", "sim"),
                             capture_output=True, text=True, check=True)
        known = {
            line.split()[0].split(":")[0]
            for line in out.stdout.split("Words:")[1].splitlines()
            if line.strip()
        }
        files = [
            pathlib.Path(__file__).with_name(name) for name in ("scenarios.txt", "two_gpus.txt")
        ]
        for line in "".join(file.read_text() for file in files).splitlines():
            words = [] if line.startswith("#") else [
                w for w in line.split() if w not in ("[", "]") and "=" not in w
            ]
            steps = [w.removeprefix("standing:") for w in words]
            self.assertLessEqual({w.split("*")[-1].split(":")[0] for w in steps}, known, line)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest])

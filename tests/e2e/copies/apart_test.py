"""Copies between two simulated GPUs, and from one to the other's memory, natively and through Tube.

apart_test.py --build FOLDER [unittest arguments]. The program is apart.cc.
"""
import argparse
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/copies/apart"


class Apart(unittest.TestCase):
    def equal(self, topology, reach, **settings):
        machine = {"TUBE_SIM_TOPOLOGY": topology, "TUBE_SIM_COUNT": "2"}
        env = dict(tubetest.environment(LAYOUT, "native", "sim"), **machine)
        native = tubetest.run_program([str(PROGRAM)], env, 60)[0]
        self.assertEqual(native.code, 0, native.err)
        self.assertIn(f"they reach each other: {reach}\n", native.out)
        with tubetest.Proxy(LAYOUT, "sim", gpus="0,1",
                            extra_env=dict(machine, **settings)) as proxy:
            env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
            tube = tubetest.run_program([str(PROGRAM)], env, 60)[0]
        self.assertEqual((tube.code, tube.out), (0, native.out), tube.err)

    def test_gpus_that_do_not_reach_each_other(self):
        self.equal("4xa10", 0)
        self.equal("4xa10", 0, TUBE_COPY_LANE="always")

    def test_gpus_that_reach_each_other(self):
        self.equal("hgx-h200", 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)

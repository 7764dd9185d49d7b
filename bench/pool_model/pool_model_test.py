"""What each policy of the pool holds beside what is in use, over a part of a trace; the same numbers
on every machine.

pool_model_test.py --program FILE --trace FILE
"""
import argparse
import json
import subprocess
import unittest

OPTIONS = argparse.Namespace()


class PoolModel(unittest.TestCase):
    def test_demand_holds_little_and_the_arms_what_they_always_did(self):
        out = subprocess.run([OPTIONS.program, OPTIONS.trace, "60", "1000", "1"],
                             capture_output=True, text=True, check=True).stdout
        held = {row["policy"]: row for row in json.loads(out)}
        self.assertLessEqual(held["demand"]["held_over_live"], 1.25)
        self.assertGreater(held["keep"]["held_over_live"], 3)
        self.assertGreater(held["static"]["held_over_live"], held["keep"]["held_over_live"] - 1)
        self.assertEqual(len({row["peak_live"] for row in held.values()}), 1)
        self.assertEqual(held["static"]["given_back"], 0)
        for row in held.values():
            self.assertLessEqual(row["made"], row["allocations"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--trace", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=["pool_model_test", *rest])

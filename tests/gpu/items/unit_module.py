#!/usr/bin/env python3
"""Runs one module of unittest tests, and prints a line for each test: `@@ ID OUTCOME`.

  unit_module.py MODULE

`@> ID` comes before a test, so that one that ends the process is known. What some tests import and
is not there (filecheck, cffi) is a stand-in: such a test fails in both arms.
"""
import faulthandler
import sys
import traceback
import unittest
import unittest.mock

STAND_INS = ("filecheck", "filecheck.matcher", "filecheck.options", "filecheck.parser",
             "filecheck.finput", "cffi")


class Lines(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        print("@>", test.id(), flush=True)

    def say(self, test, outcome, error=None):
        print("@@", test.id(), outcome, flush=True)
        if error is not None:
            print("".join(traceback.format_exception(*error)[-12:]), flush=True)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.say(subtest, "failure", error)

    def addSuccess(self, test):
        self.say(test, "ok")

    def addError(self, test, error):
        self.say(test, "error", error)

    def addFailure(self, test, error):
        self.say(test, "failure", error)

    def addSkip(self, test, why):
        self.say(test, "skipped")

    def addExpectedFailure(self, test, error):
        self.say(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        self.say(test, "unexpected success")


def main():
    faulthandler.enable()
    import numpy
    if not hasattr(numpy, "row_stack"):  # numba's tests are older than numpy 2
        numpy.row_stack = numpy.vstack
    for name in STAND_INS:
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = unittest.mock.MagicMock()
    unittest.defaultTestLoader.loadTestsFromName(sys.argv[1]).run(Lines())


if __name__ == "__main__":
    main()

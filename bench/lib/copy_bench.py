"""What the scripts of the copy benches share: their options, and a run from the arms to the result
file."""
import argparse
import sys
import time

import arm_set
import busy_cores
import copy_report
import copy_runs
import figures
import result_file
import tubetest


def parser(doc, arms, budget, quick_budget):
    """Options of every copy bench; the quick ones are filled in by parse()."""
    made = argparse.ArgumentParser(description=doc.split("\n")[0])
    made.add_argument("--build", help="build folder or bundle")
    made.add_argument("--backend", choices=["driver", "sim"], default="driver")
    made.add_argument("--arms", default=arms,
                      help=f"comma-separated: {', '.join(arm_set.NAMES)}, tube:NAME=VALUE")
    made.add_argument("--quick", action="store_true", help="fewer rows and samples")
    made.add_argument("--tiny", action="store_true",
                      help="kilobytes and one round: bytes and counts are checked, no times")
    made.add_argument("--busy", choices=["", *busy_cores.KINDS], default="",
                      help="beside a job on every core, of the lowest or the same priority")
    made.add_argument("--rounds", type=int, default=0)
    made.add_argument("--budget", type=float, default=0,
                      help=f"seconds ({budget}, quick {quick_budget}); rows that no longer fit are "
                      "left out aloud")
    made.add_argument("--out", default="", help="folder for the result as JSON and text")
    made.set_defaults(budgets=(budget, quick_budget))
    return made


def parse(made):
    options = made.parse_args()
    few = options.quick or options.tiny
    options.rounds = options.rounds or (1 if options.tiny else 2 if options.quick else 3)
    options.budget = options.budget or options.budgets[few]
    options.arms = options.arms.split(",")
    del options.budgets
    return options


def problems(result, options):
    """What was wrong, and in a tiny run also what is missing: there every row has every arm."""
    wrong = [w for row in result["rows"] for w in row["wrong"]]
    if options.tiny:
        wrong += [f"no arm {name}: {why}" for name, why in result["missing"].items()]
        wrong += result.get("notes", [])
    return wrong or ([] if result["rows"] else ["nothing was measured"])


def run(name, options, body, report=copy_report.text):
    """body(runner) measures, report(result) is its text; returns the exit status."""
    driver, reason = arm_set.find_backend(options.backend)
    if reason:
        print(f"SKIPPED: {reason}")
        return tubetest.SKIP
    layout = tubetest.Layout(options.build)
    layout.require()
    begin = time.monotonic()
    with arm_set.ArmSet(layout, options.backend, driver, options.arms) as arms:
        chosen = {k: v for k, v in vars(options).items() if k not in ("build", "out")}
        result = result_file.header(name, layout, options.backend, driver, arms, chosen,
                                    arm_set.words)
        runner = copy_runs.Runner(arms, options, result,
                                  lambda: result_file.write(options.out, result, report(result)))
        with busy_cores.running(options.busy, arms.work):
            body(runner)
    result["seconds"] = round(time.monotonic() - begin, 1)
    result["figures"] = figures.text({name: result})
    print(result_file.write(options.out, result, report(result)))
    wrong = problems(result, options)
    for words in wrong:
        print(f"WRONG: {words}", file=sys.stderr)
    return 1 if wrong else 0

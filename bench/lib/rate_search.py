"""The highest rate of arrivals that an arm keeps a bound at, by bisection over short windows.

A window at a rate says whether the bound held. The search begins at the rate that a closed loop
reached: while the bound holds it is doubled, then the span between the best that held and the least
that did not is halved. A machine that stumbles once would end the search too low, so a window that
did not hold is asked a second time when it was close.
"""
import dataclasses

CLOSE = 1.3  # times the bound: worth a second window


@dataclasses.dataclass
class Found:
    """The highest rate that held (0.0: none did), whether a higher one was seen to fail, and what
    was asked: [(rate, P99 in ns or None, held)]."""
    rate: float
    bounded: bool
    asked: list


def held(ask, rate, bound_ns, asked):
    """Whether P99 is within the bound at this rate. `ask` runs a window and tells P99, or None when
    requests were lost."""
    for _ in range(2):
        p99 = ask(rate)
        good = p99 is not None and p99 <= bound_ns
        asked.append((rate, p99, good))
        if good or p99 is None or p99 > CLOSE * bound_ns:
            return good
    return False


def highest(ask, start, bound_ns, windows=6, precision=0.05):
    """`windows` limits how many rates are asked."""
    low, high, asked, rate = 0.0, None, [], start
    for _ in range(windows):
        if held(ask, rate, bound_ns, asked):
            low = rate
        else:
            high = rate
        if high is None:
            rate = low * 2
            continue
        if high - low <= precision * high:
            break
        rate = (low + high) / 2
    return Found(low, high is not None, asked)

"""The headlines of the four papers, a file each, and how ours are measured (measured.py)."""
import dataclasses
import typing


@dataclasses.dataclass(frozen=True)
class Headline:
    """A claim of a paper. `ours` takes the results and says our figure or None; `missing` says
    what stands in its way while there is none, and what is not comparable when there is one.
    `figure`: of figures.py, which the bench prints with what must be reached."""
    key: str
    claim: str
    setting: str
    bench: str
    ours: typing.Callable
    missing: str
    figure: str = ""


def nothing(_results):
    """For a claim that no bench measures yet."""
    return None

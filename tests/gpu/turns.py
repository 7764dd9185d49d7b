"""What arms that ran blocks of steps in turns say about each other.

A machine that others use as well is slow for a second and fast for the next, by half and more. A median over all steps of an arm
then says how much of the slow time that arm met. Two blocks that ran one after the other met the same, so their medians
are compared, and of all these ratios the median is taken.
"""
import statistics


def ratio(native, other):
    """`native`, `other`: the arms' blocks of one run, each a median or any one number, in the order they ran. None without any."""
    pairs = [(a, b) for a, b in zip(native, other) if a]
    return statistics.median(b / a for a, b in pairs) if pairs else None

"""Recognises loops over time, and tells by data flow which kind each is."""

from perflint.analysis.loops.timeloops.kinds import AUTOREGRESSIVE, MIXED, RECURRENCE, VECTORIZABLE
from perflint.analysis.loops.timeloops.recognition import TimeLoop, time_loop

__all__ = ["AUTOREGRESSIVE", "MIXED", "RECURRENCE", "VECTORIZABLE", "TimeLoop", "time_loop"]

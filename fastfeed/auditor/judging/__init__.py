"""What is slow, and why: recorded times are compared with what is usual for the size, and suspects are measured again.

A caller gives each record to a Ledger (or all of them to judge.judge), and judge.judge_ledger a callable that measures samples
again (repeats.Remeasure); beats of the machine meanwhile come from pulse.beat, called in a process that measures. All else is
pure: the same records and repeats give the same verdict.
"""

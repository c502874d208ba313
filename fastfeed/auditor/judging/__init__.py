"""What is slow, and why: recorded times are compared with what is usual for the size, and suspects are measured again.

Pure but for :mod:`pulse`, which times a fixed piece of work: times come as records, repeats from a callable of the caller's.
"""

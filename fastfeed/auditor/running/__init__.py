"""Samples are loaded one by one in processes that may hang, crash or run out of memory: which one did it is known exactly."""

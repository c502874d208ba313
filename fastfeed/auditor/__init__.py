"""Every slow or broken sample has a name: samples are read, decoded and looked at one by one, and judged (cf. audit.py)."""

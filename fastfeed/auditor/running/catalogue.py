"""All codes that an audit may give, by name."""

from fastfeed.auditor.running.codes import RUNNING

CODES = {**RUNNING}

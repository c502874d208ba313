"""All codes that an audit may give, by name."""

from fastfeed.auditor.finding import catalogue
from fastfeed.auditor.judging.codes import TIMING_CODES
from fastfeed.auditor.looking.codes import CODES as LOOKING
from fastfeed.auditor.running.codes import RUNNING

CODES = catalogue(*RUNNING.values(), *LOOKING.values(), *TIMING_CODES.values())
"""Those of looking, judging and running."""

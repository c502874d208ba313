"""All codes that an audit may give, by name."""

from fastfeed.auditor.finding import Code, catalogue
from fastfeed.auditor.judging.codes import TIMING_CODES
from fastfeed.auditor.looking import setcodes
from fastfeed.auditor.looking.codes import CODES as LOOKING
from fastfeed.auditor.running.codes import RUNNING

CODES = catalogue(*RUNNING.values(), *LOOKING.values(), *TIMING_CODES.values())
"""Those of looking, judging and running."""
LATE = {*TIMING_CODES, *(code.name for code in vars(setcodes).values() if isinstance(code, Code))}
"""Names of those that are found when all samples have been looked at: an audit that is continued finds them anew."""

"""All codes of this room by name."""

from fastfeed.auditor.finding import Code, catalogue
from fastfeed.auditor.looking import filecodes, imagecodes, setcodes, textcodes

ROOMS = (filecodes, imagecodes, setcodes, textcodes)
CODES = catalogue(*(value for room in ROOMS for value in vars(room).values() if isinstance(value, Code)))
"""By name."""

"""``python -m fastfeed`` is the command ``fastfeed``."""

import sys
from typing import NoReturn

_INTERRUPTED = 130


def main() -> NoReturn:
    """Load the command and run it; Ctrl-C is answered in words from the first moment, as later on."""
    try:
        from fastfeed.cli.main import main as command  # noqa: PLC0415 - loading takes long enough to be interrupted
    except KeyboardInterrupt:
        sys.stderr.write("\nfastfeed: interrupted. Nothing was begun.\n")
        sys.exit(_INTERRUPTED)
    command()


if __name__ == "__main__":
    main()

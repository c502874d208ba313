"""``python -m fastfeed`` is the command ``fastfeed``."""

from fastfeed.cli.main import main

if __name__ == "__main__":
    main()

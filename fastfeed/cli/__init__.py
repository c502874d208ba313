"""The command line: one thin file a command; only render.py and bars.py print."""

"""The on-disk format and nothing else; README.md beside this file is its specification."""

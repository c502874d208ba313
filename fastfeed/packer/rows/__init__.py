"""Packing what is no folder of files: rows of tables, Python datasets, iterables, tars. One shape of sample for all of them."""

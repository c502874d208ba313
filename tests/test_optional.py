"""Optional packages: loaded when they are used, named when they are not there."""

import json

import pytest

from fastfeed.errors import UsageError
from fastfeed.optional import load


def test_a_package_that_is_there():
    assert load("json", "nothing", "a test") is json


def test_a_package_that_is_not_there_is_named_with_its_extra():
    with pytest.raises(UsageError) as caught:
        load("no_such_package.part", "parquet", "a parquet file")
    assert str(caught.value) == (
        "a parquet file needs the package no_such_package, which cannot be imported (No module named 'no_such_package')."
        " Install it: pip install 'fastfeed[parquet]'."
    )

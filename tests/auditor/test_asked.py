import pytest

from fastfeed.auditor.asked import AuditConfig, audit_config
from fastfeed.config import RowConfig
from fastfeed.errors import UsageError


def test_defaults_ask_for_all():
    assert audit_config({}) == AuditConfig()
    assert (AuditConfig().sample, AuditConfig().fast, AuditConfig().kill_after) == (None, False, None)


def test_a_size_with_a_unit():
    assert audit_config({"memory_limit": "2GiB"}).memory_limit == 2 << 30
    assert audit_config({"memory_limit": 5}).memory_limit == 5


def test_what_is_said_of_rows_is_said_as_for_pack():
    config = audit_config({"field": {"image": "{id}.jpg"}, "label": "kind", "key": "id", "classes": ["a", "b"]})
    assert config.rows == RowConfig(field=(("image", "{id}.jpg"),), label="kind", key="id", classes=("a", "b"))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"workers": 0}, "workers is a whole number from 1"), ({"sample": True}, "sample is a whole number"),
     ({"max_minutes": 0}, "max_minutes is a number above 0"), ({"kill_after": "1"}, "kill_after is a number"),
     ({"memory_limit": "much"}, "memory_limit: "), ({"wokers": 2}, "audit has no option wokers"),
     ({"rows": None}, "audit has no option rows"), ({"field": "image"}, "field maps names to texts")],
)  # fmt: skip
def test_what_does_not_fit(options, words):
    with pytest.raises(UsageError, match=words):
        audit_config(options)

from fastfeed.config import PackConfig, RowConfig
from fastfeed.packer.rows.asked import Planned, RowJob, as_json, options_of, shown
from fastfeed.packer.rows.source import RowFacts
from fastfeed.sample import SkipEntry, SkipList
from fastfeed.source.scan import LeftOut


class Source:
    def facts(self):
        return RowFacts(
            count=3, source_bytes=3, exact=True, files=1, layout="x", identity={"rows": 3}, columns=("a",), extra_columns=("b",)
        )

    def rows(self, numbers):
        yield from ()

    def spec(self):
        return None


def job(**changes):
    return RowJob(
        source=Source(), where="here", name="data", destination="/d", **{"config": PackConfig(), "rows": RowConfig(), **changes}
    )


def test_what_a_rerun_must_find_equal():
    first = job()
    assert first.identity["source"] == {"rows": 3} and first.identity["options"]["name"] == "data"
    for change in (
        {"config": PackConfig(shards=2)},
        {"rows": RowConfig(label="x")},
        {"exclude": SkipList([SkipEntry(key="a")])},
    ):
        assert job(**change).identity != first.identity
    assert first.source_digest() == job(config=PackConfig(shards=2)).source_digest()
    assert first.identity == as_json(first.identity)


def test_what_to_do_about_failures_decides_no_bytes():
    stop, skip = job(), job(config=PackConfig(on_error="skip"))
    assert stop.identity != skip.identity and stop.decides == skip.decides


def test_columns():
    assert job().columns() == ("a", "b")


def test_a_plan_that_leaves_rows_out():
    failed = {1: LeftOut("sample 1", "unreadable", "why")}
    assert list(job().plan(failed, refuse=False).rows) == [0, 2]
    assert list(job(config=PackConfig(on_error="skip")).plan(failed).rows) == [0, 2]


def test_failures_are_told_shortly():
    told = shown([(f"s\n{at}", "w" * 1000) for at in range(9)])
    assert told.count("; ") == 5 and told.endswith("; and 4 more") and len(told) < 1800 and "\n" not in told


def test_options_and_plans():
    options = options_of(
        PackConfig(name="n"), RowConfig(), name="other", exclude=SkipList([SkipEntry(key="b"), SkipEntry(key="a")])
    )
    again = options_of(PackConfig(), RowConfig(), name="n", exclude=SkipList([SkipEntry(key="a"), SkipEntry(key="b")]))
    assert {**options, "name": 0} == {**again, "name": 0} and options["name"] == again["name"] == "n"
    plan = Planned("n", ())
    assert plan.datasets == (plan,) and plan.split == ""

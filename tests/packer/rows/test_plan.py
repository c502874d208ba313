import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.archive.shard import LEGAL_KEY
from fastfeed.config import pack_config
from fastfeed.errors import SourceUnreadable, UsageError
from fastfeed.packer.rows.plan import plan_rows
from fastfeed.packer.rows.source import RowFacts
from fastfeed.sample import SkipEntry, SkipList
from fastfeed.source.scan import LeftOut


def facts(count=10, **changes):
    values = {
        "count": count,
        "source_bytes": 1000 * count,
        "exact": True,
        "files": 1,
        "layout": "x",
        "identity": {},
        "fields": ("jpg",),
    }
    return RowFacts(**{**values, **changes})


def planned(found, exclude=(), failed=None, one_of_several=False, **options):
    skip = SkipList(list(exclude))
    return plan_rows(found, pack_config(options), name="data", exclude=skip, failed=failed or {}, one_of_several=one_of_several)


def test_numbers_are_keys_where_there_are_no_names():
    plan = planned(facts(3))
    assert list(plan.keys) == ["000000000", "000000001", "000000002"] and list(plan.rows) == [0, 1, 2]
    assert plan.order == "source" and [(s.file, s.first, s.stop) for s in plan.shards] == [("data-000000.tar", 0, 3)]


@given(st.lists(st.text(max_size=8) | st.sampled_from(["a", "A", "a/b", "a b"]), min_size=1, max_size=20))
def test_keys_are_legal_and_unique_whatever_the_names(stems):
    plan = planned(facts(len(stems), stems=stems, max_field_bytes=8))
    assert len({key.lower() for key in plan.keys}) == len(stems)
    assert all(LEGAL_KEY.fullmatch(key) and len(key) + 9 <= 100 for key in plan.keys)


def test_keys_do_not_depend_on_what_is_left_out():
    stems = ["a", "b c", "A", "d"]
    whole = planned(facts(4, stems=stems))
    part = planned(facts(4, stems=stems), failed={1: LeftOut("b c", "unreadable", "x")})
    assert list(part.keys) == [whole.keys[at] for at in (0, 2, 3)]


@given(
    st.integers(1, 60),
    st.fixed_dictionaries(
        {}, optional={"shards": st.integers(1, 9), "limit": st.integers(1, 70), "shuffle": st.integers(0, 3)}
    ),
    st.sets(st.integers(0, 59), max_size=5),
)
def test_each_row_is_in_one_shard(count, options, gone):
    failed = {at: LeftOut(str(at), "unreadable", "x") for at in gone if at < count}
    if len(failed) == count:
        with pytest.raises(SourceUnreadable, match="no sample is left to pack"):
            planned(facts(count), failed=failed, **options)
        return
    plan = planned(facts(count), failed=failed, **options)
    kept = [at for at in range(count) if at not in failed]
    limit = options.get("limit", count)
    assert len(plan.rows) == min(limit, len(kept)) and plan.limited == max(0, len(kept) - limit)
    assert (sorted(plan.rows) if "shuffle" in options else list(plan.rows)) == (
        sorted(plan.rows) if "shuffle" in options else kept[:limit]
    )
    assert set(plan.rows) <= set(kept) and len(set(plan.rows)) == len(plan.rows)
    sizes = [shard.stop - shard.first for shard in plan.shards]
    assert sum(sizes) == len(plan.rows) and max(sizes) - min(sizes) <= 1 and min(sizes) > 0
    assert [shard.first for shard in plan.shards[1:]] == [shard.stop for shard in plan.shards[:-1]]


def test_shuffled_as_the_seed_says():
    first, again, other = (planned(facts(50), shuffle=seed) for seed in (1, 1, 2))
    assert list(first.rows) == list(again.rows) != list(other.rows) and first.order == "shuffled"
    assert [first.keys[at] for at in range(50)] == [f"{number:09d}" for number in first.rows]
    with pytest.raises(UsageError, match=r"x.gz is compressed: it cannot be shuffled.*got shuffle 1\. Decompress it first"):
        planned(facts(unshuffled="x.gz is compressed"), shuffle=1)


def test_the_skip_list_by_name_key_or_made_path():
    entries = [SkipEntry(source="sample 1"), SkipEntry(key="000000002"), SkipEntry(source="000000003.jpg", kind="bad")]
    plan = planned(facts(), entries)
    assert list(plan.rows) == [0, 4, 5, 6, 7, 8, 9]
    assert [item.source for item in plan.left_out] == ["sample 1", "sample 2", "sample 3"]
    assert plan.left_out[2].why == "named by the skip list (bad)"
    plan = planned(facts(names=[f"p/{at}" for at in range(10)]), [SkipEntry(source="p/4"), SkipEntry(key="nothing")])
    assert len(plan.rows) == 9 and plan.notes == ("1 entry of the skip list matches no sample (nothing)",)
    with pytest.raises(
        UsageError, match=r"the skip list \(1 entry\) matches no sample of this source: expected such as sample 0"
    ):
        planned(facts(), [SkipEntry(key="nothing")])
    assert not planned(facts(), [SkipEntry(key="nothing")], one_of_several=True).notes


def test_an_order_that_is_imagefolders_until_a_row_is_missing():
    assert planned(facts(order="imagefolder")).order == "imagefolder"
    assert planned(facts(order="imagefolder"), [SkipEntry(key="000000009")]).order == "imagefolder"
    assert planned(facts(order="imagefolder"), [SkipEntry(key="000000003")]).order == "source"


def test_what_is_told_beforehand():
    small = planned(facts(1_000_000, source_bytes=50_000_000))
    (note,) = small.notes
    assert note.startswith(
        "the samples are small: tar headers and padding add about 732.4 MiB, 1536% of the source; --compress"
    )
    assert not planned(facts(1_000_000, source_bytes=50_000_000), compress="zstd").notes
    assert planned(facts(exact=False)).why[-1].endswith("at a target of 512.0 MiB (estimated from a few samples)")
    assert planned(facts(exact=False), shards=2).why[-1] == "2 shards of 5 samples: asked for"
    shuffled = planned(facts(10, source_bytes=2 << 30, gathered=3 << 30), shuffle=1, shards=2)
    assert shuffled.notes == ("shuffled: each shard is gathered from the whole table, which is read 8 times (24.0 GiB)",)
    assert not planned(facts(gathered=3 << 30), shuffle=1).notes and not planned(facts(gathered=3 << 30)).notes


def test_digests_of_shards():
    plan = planned(facts(), shards=2)
    digests = {plan.digest(shard, {"a": 1}) for shard in plan.shards} | {plan.digest(plan.shards[0], {"a": 2})}
    assert len(digests) == 3
    assert plan.digest(plan.shards[0], {"a": 1}) == planned(facts(), shards=2).digest(plan.shards[0], {"a": 1})

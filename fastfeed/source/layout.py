"""How a listing is read: splits, classes, files; which files make a sample; each decision with its reason. Pure functions."""

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from fastfeed import vectors
from fastfeed.config import PackConfig
from fastfeed.errors import SourceAmbiguous, SourceUnreadable
from fastfeed.media import is_image_field
from fastfeed.sample import printable
from fastfeed.source.lister import FOLDER_WHY
from fastfeed.source.names import (
    IMAGEFOLDER_EXTENSIONS,
    FileName,
    all_differ,
    compound_field,
    counted,
    group,
    has_dots,
)
from fastfeed.source.scan import LeftOut, Listing
from fastfeed.units import format_count

_SPLIT = re.compile(r"(?:train|training|val|valid|validation|dev|test|testing|eval|unlabeled)(?:[-_]?\d+)?")
"""Names of splits, also with a number or a year: val, train2017."""
PARALLEL_NAMES = frozenset({
    "images", "image", "imgs", "img", "jpegimages", "labels", "label", "masks", "mask", "annotations", "annotation",
    "segmentation", "captions", "texts", "audio", "depth",
})  # fmt: skip
_STRAY_SHARE = 0.1
"""Files beside class folders are stray (a README, a list) up to this share of all; more is a layout that we do not know."""
_FIELD_SHARE = 0.05
"""A word after a dot in the stem ("mask" of 0001.mask.png) is part of the field from this share of all files on."""
_SHOWN = 5


@dataclass(slots=True)
class Draft:
    """One dataset before order, keys and shards are settled: its samples in the source's order, in columns."""

    split: str
    """Folder of the split below the source, "" without splits."""
    layout: str
    classes: list[str] | None
    as_imagefolder: bool
    """Whether position i is ImageFolder's i."""
    labels: "array[int]" = field(default_factory=lambda: array("q"))
    """Class number a sample; empty without classes."""
    stems: list[str] = field(default_factory=list)
    """Path below the source without extension, a sample each."""
    starts: "array[int]" = field(default_factory=lambda: array("Q", [0]))
    """First member of each sample, and one more."""
    files: "array[int]" = field(default_factory=lambda: array("q"))
    """File number a member."""
    fields: list[str] = field(default_factory=list)
    """Field a member; sorted within a sample."""
    why: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.stems)

    def fields_of(self, sample: int) -> list[str]:
        """Fields of one sample."""
        return self.fields[self.starts[sample] : self.starts[sample + 1]]

    def files_of(self, sample: int) -> "array[int]":
        """File numbers of one sample."""
        return self.files[self.starts[sample] : self.starts[sample + 1]]


def read_layout(listing: Listing, config: PackConfig) -> list[Draft]:
    """Find the datasets in a listing.

    Args:
        listing: What the scan found.
        config: Forces a layout or a grouping where it is not auto.

    Raises:
        SourceAmbiguous: Two readings are possible; the message names the options that choose.
        SourceUnreadable: There is no file to pack.
    """
    if not len(listing):
        raise _nothing(listing)
    tops = _below(listing, "")
    splits, why = _splits(listing, tops, config)
    if not splits:
        drafts = [_dataset(listing, "", config)]
        drafts[0].why.insert(0, why)
        return drafts
    within = replace(config, layout="auto" if config.layout == "splits" else config.layout)
    drafts = [_dataset(listing, name, within) for name in splits]
    for draft in drafts:
        draft.why.insert(0, why)
    stray = [LeftOut(listing.names[number], "beside", "beside the split folders") for number in listing.files_of(0)]
    drafts[0].left_out.extend(stray)
    empty = [printable(draft.split) for draft in drafts if not len(draft)]
    if empty:
        msg = f"there is no file to pack in {', '.join(empty)}"
        raise SourceUnreadable(msg, hint="Remove what is empty, or pack the other splits on their own.")
    return _one_class_map(drafts, config)


def _nothing(listing: Listing) -> SourceUnreadable:
    others = len(listing.left_out) + len(listing.unreadable)
    msg = "there is no file to pack" + (f": what there is ({others}) is hidden, special or unreadable" if others else "")
    return SourceUnreadable(msg, hint="Give a folder with files in it, or in folders below it.")


def _below(listing: Listing, prefix: str) -> list[str]:
    """Names of the folders directly below a folder, sorted."""
    start = f"{prefix}/" if prefix else ""
    return sorted({f[len(start) :].partition("/")[0] for f in listing.folders if f.startswith(start) and len(f) > len(start)})


def _splits(listing: Listing, tops: list[str], config: PackConfig) -> tuple[list[str], str]:
    """The split folders (none for one dataset) and the reason."""
    known = [name for name in tops if _SPLIT.fullmatch(name.lower())]
    if config.layout not in {"auto", "splits"}:
        return [], f"layout {config.layout}: asked for"
    if config.layout == "splits":
        if not tops:
            msg = "there is no folder to take as a split"
            raise SourceAmbiguous(msg, hint="Use --layout files or --layout classes.")
        if any(name.startswith(".") for name in tops):
            msg = f"a hidden folder ({printable(min(tops))}) cannot be a split"
            raise SourceAmbiguous(msg, hint="Pack without --hidden, or rename it.")
        return tops, f"layout splits: asked for; splits are {', '.join(map(printable, tops))}"
    if known and len(known) < len(tops):
        others = ", ".join(printable(name) for name in tops if name not in known)
        msg = f"{', '.join(known)} look like splits, but {others} beside them do not"
        hint = (
            "Move the others away, pack each split on its own, or choose: --layout splits (all are splits), classes or files."
        )
        raise SourceAmbiguous(msg, hint=hint)
    if known and _stray(listing, 0, sum(1 for _ in listing.files_of(0))):
        return known, f"splits {', '.join(known)}: all folders at the top have names of splits"
    return (
        [],
        "one dataset: the folders at the top are not named like splits" if tops else "one dataset: no folders below",
    )


def _stray(listing: Listing, folder: int, count: int) -> bool:
    """Whether a folder's own files are few and no images, so that they may be left out beside the folders in it."""
    images = any(is_image_field(listing.fields[number]) for number in listing.files_of(folder))
    return not images and count <= max(3, _STRAY_SHARE * len(listing))


def _dataset(listing: Listing, prefix: str, config: PackConfig) -> Draft:
    layout, why = _choose(listing, prefix, config)
    draft = _classes(listing, prefix, config) if layout == "classes" else _files(listing, prefix, config)
    draft.why.insert(0, why)
    _unify_images(draft)
    _report_schemas(draft)
    return draft


def _choose(listing: Listing, prefix: str, config: PackConfig) -> tuple[str, str]:
    """Classes or files, with the reason."""
    where = f"{prefix}: " if prefix else ""
    if config.layout in {"classes", "files"}:
        return config.layout, f"{where}{config.layout}: asked for"
    tops = _below(listing, prefix)
    own = listing.files_of(listing.folders.index(prefix))
    if not tops:
        return "files", f"{where}files: no folders to take as classes"
    parallel = [name for name in tops if name.lower() in PARALLEL_NAMES]
    if len(parallel) > 1 or len(parallel) == len(tops):
        look = (
            "looks like one of parallel trees, not like a class"
            if len(tops) == 1
            else "look like parallel trees, not like classes"
        )
        msg = f"{where}{', '.join(map(printable, tops[:_SHOWN]))} {look}"
        hint = (
            "Parallel trees cannot be joined yet: put files that belong together side by side (0001.jpg 0001.txt), or choose "
            "--layout files (each file is a sample of its own)"
        ) + ("." if prefix else " or --layout classes (each folder is a class).")
        raise SourceAmbiguous(msg, hint=hint)
    if not _stray(listing, listing.folders.index(prefix), len(own)):
        example = printable(listing.names[own[0]])
        folders = f"{format_count(len(tops), 'folder')} ({printable(tops[0])}{' ...' if len(tops) > 1 else ''})"
        msg = f"{where}there are {format_count(len(own), 'file')} ({example} ...) beside {folders}"
        hint = "Choose: --layout classes (a class a folder, the files beside are left out) or --layout files (all are samples)."
        raise SourceAmbiguous(msg, hint=hint)
    return "classes", f"{where}one class per folder: {format_count(len(tops), 'class', 'classes')}"


def _classes(listing: Listing, prefix: str, config: PackConfig) -> Draft:
    """ImageFolder's order: class names sorted; in each the folders sorted by path; in each the files sorted by name."""
    start = f"{prefix}/" if prefix else ""
    inside = [
        (f[len(start) :], number) for number, f in enumerate(listing.folders) if f.startswith(start) and len(f) > len(start)
    ]
    inside.sort(key=lambda item: (item[0].partition("/")[0], item[0]))
    if not inside:
        msg = "there are no folders to take as classes"
        raise SourceAmbiguous(msg, hint="Use --layout files, or name a folder that holds class folders.")
    draft = Draft(prefix, "classes", [], as_imagefolder=True)
    grouper = _Grouper(listing, [number for _, number in inside], config, merge_images=config.group == "stem")
    assert draft.classes is not None
    for name, folders in groupby(inside, key=lambda item: item[0].partition("/")[0]):
        for _, number in folders:
            draft.labels.extend(array("q", [len(draft.classes)]) * grouper.folder(number, draft))
        draft.classes.append(name)
    own = listing.files_of(listing.folders.index(prefix))
    for number in own:
        draft.left_out.append(LeftOut(f"{start}{listing.names[number]}", "beside", "beside the class folders"))
    grouper.report(draft)
    _compare_with_imagefolder(draft, grouper)
    return draft


def _files(listing: Listing, prefix: str, config: PackConfig) -> Draft:
    start = f"{prefix}/" if prefix else ""
    inside = sorted((f, number) for number, f in enumerate(listing.folders) if f == prefix or f.startswith(start))
    draft = Draft(prefix, "files", None, as_imagefolder=False)
    grouper = _Grouper(listing, [number for _, number in inside], config, merge_images=True)
    for _, number in inside:
        grouper.folder(number, draft)
    grouper.report(draft)
    return draft


class _Grouper:
    """Groups folder after folder in one way, and remembers what is worth telling."""

    def __init__(self, listing: Listing, folders: Sequence[int], config: PackConfig, *, merge_images: bool) -> None:
        self.listing, self.merge_images = listing, merge_images
        self.taken = 0
        self.images, others = self._census(folders)
        if config.group == "auto":
            self.by_stem = merge_images or others > 0
            self.why = "files that share a stem make a sample" if self.by_stem else "each image is a sample"
            if not merge_images and self.images and others:
                self.why += (
                    f", each image starts one ({format_count(self.images, 'image')}, {format_count(others, 'other file')})"
                )
        else:
            self.by_stem = config.group == "stem"
            self.why = f"grouping {config.group}: asked for"

    def _census(self, folders: Sequence[int]) -> tuple[int, int]:
        """Count images and others, and settle which compound fields ("mask.png") are common enough to be fields."""
        fields: Counter[str] = Counter()
        compounds: Counter[str] = Counter()
        for folder in folders:
            files = self.listing.files_of(folder)
            fields.update(counted(self.listing.fields[files.start : files.stop]))
            if has_dots(self.listing.bases[files.start : files.stop]):
                compounds.update(map(compound_field, self.listing.names[files.start : files.stop]))
        images = sum(count for name, count in fields.items() if is_image_field(name))
        total = sum(fields.values())
        self.compounds = frozenset(name for name, count in compounds.items() if name and count >= _FIELD_SHARE * total)
        return images, total - images

    def folder(self, number: int, draft: Draft) -> int:
        """Add one folder's samples to a draft; give how many."""
        files = self.listing.files_of(number)
        names, fields = self.listing.names[files.start : files.stop], self.listing.fields[files.start : files.stop]
        prefix = f"{self.listing.folders[number]}/" if self.listing.folders[number] else ""
        bases = self.listing.bases[files.start : files.stop]
        plain = not self.by_stem or (not has_dots(bases) and all_differ(bases))
        if plain:  # a file a sample: most folders, so no object is made for a sample
            draft.stems.extend([prefix + base for base in bases])
            draft.starts.extend(vectors.counting("Q", len(draft.files) + 1, len(draft.files) + len(files) + 1))
            draft.files.extend(vectors.counting("q", files.start, files.stop))
            draft.fields.extend(fields)
            return len(files)
        listed = [FileName(*entry) for entry in zip(names, files, fields, strict=True)]
        samples, taken = group(listed, self.compounds, by_stem=True, merge_images=self.merge_images)
        self.taken += taken
        for sample in samples:
            draft.stems.append(prefix + sample.stem)
            draft.fields.extend(name for name, _ in sample.members)
            draft.files.extend(file for _, file in sample.members)
            draft.starts.append(len(draft.files))
        return len(samples)

    def report(self, draft: Draft) -> None:
        """Say how files became samples."""
        draft.why.append(self.why)
        if self.taken:
            draft.why.append(
                f"{format_count(self.taken, 'file')} share stem and kind with another: each is a sample of its own"
            )


def _schemas(draft: Draft) -> Counter[tuple[str, ...]]:
    """How many samples have which fields."""
    if len(draft.files) == len(draft):
        return Counter({(name,): count for name, count in counted(draft.fields).items()})
    return Counter(tuple(draft.fields_of(sample)) for sample in range(len(draft)))


def _report_schemas(draft: Draft) -> None:
    schemas = _schemas(draft)
    if len(schemas) > 1:
        shown = "; ".join(f"{'+'.join(names)} {count:,} x" for names, count in schemas.most_common(3))
        more = f"; and {len(schemas) - 3} more" if len(schemas) > 3 else ""  # noqa: PLR2004 - the three shown
        draft.why.append(f"samples differ in their fields: {shown}{more} (HF datasets and default collate want equal fields)")


def _compare_with_imagefolder(draft: Draft, grouper: _Grouper) -> None:
    empty = (
        [printable(draft.classes[number]) for number in sorted({*range(len(draft.classes or []))} - {*draft.labels})]
        if draft.classes
        else []
    )
    if empty:
        draft.why.append(f"{format_count(len(empty), 'class', 'classes')} without samples: {', '.join(empty[:_SHOWN])}")
    if not grouper.images:
        draft.as_imagefolder = False
        return
    takes = tuple(f".{extension}" for extension in IMAGEFOLDER_EXTENSIONS)
    counts = [
        sum(grouper.listing.names[file].lower().endswith(takes) for file in draft.files_of(at)) for at in range(len(draft))
    ]
    foreign = [at for at, count in enumerate(counts) if count == 0]
    hidden = [item.source for item in _left_below(grouper.listing, draft.split) if _imagefolder_takes(item, takes)]
    if hidden:
        draft.as_imagefolder = False
        shown = ", ".join(map(printable, hidden[:3]))
        draft.why.append(f"positions are not ImageFolder's: it would take what is left out ({shown} ...)")
    elif foreign:
        draft.as_imagefolder = False
        shown = ", ".join(printable(grouper.listing.paths[draft.files_of(at)[0]]) for at in foreign[:3])
        draft.why.append(
            f"positions are not ImageFolder's: it would ignore {format_count(len(foreign), 'sample')} ({shown} ...)"
        )
    elif max(counts, default=0) > 1:
        draft.as_imagefolder = False
        draft.why.append("positions are not ImageFolder's: samples hold several images")


def _left_below(listing: Listing, split: str) -> list[LeftOut]:
    """What is left out below a split for its name or kind, with paths from the split on."""
    start = f"{split}/" if split else ""
    items = (item for item in listing.left_out if item.kind != "loop" and item.source.startswith(start))
    return [item._replace(source=item.source[len(start) :]) for item in items]


def _imagefolder_takes(item: LeftOut, extensions: tuple[str, ...]) -> bool:
    """Whether ImageFolder would take it as a sample, or such a folder as a class or for what is in it."""
    folder, _, name = item.source.rpartition("/")
    return item.why.startswith(FOLDER_WHY) or (folder != "" and name.lower().endswith(extensions))


def _unify_images(draft: Draft) -> None:
    """One image extension a dataset: where no sample has two plain images, their field is that of most."""
    counts = counted(draft.fields)
    for name in [name for name in counts if "." in name or not is_image_field(name)]:
        del counts[name]
    if len(counts) < 2:  # noqa: PLR2004 - nothing to unify
        return
    for sample in range(len(draft)) if len(draft.files) > len(draft) else ():
        if sum(name in counts for name in draft.fields_of(sample)) > 1:
            return
    most = min(counts, key=lambda name: (-counts[name], name))
    for sample in range(len(draft)):
        start, stop = draft.starts[sample], draft.starts[sample + 1]
        members = sorted(
            (most if name in counts else name, file)
            for name, file in zip(draft.fields[start:stop], draft.files[start:stop], strict=True)
        )
        draft.fields[start:stop] = [name for name, _ in members]
        draft.files[start:stop] = array("q", [file for _, file in members])
    shown = ", ".join(f"{name} {count:,}" for name, count in counts.most_common())
    draft.why.append(f"images are called {most} in the shards, as most are ({shown}); content decides how they decode")


def _one_class_map(drafts: list[Draft], config: PackConfig) -> list[Draft]:
    """Give the splits one class map, or stop and name the classes that differ."""
    labelled = [draft for draft in drafts if draft.classes is not None]
    union = sorted({name for draft in labelled for name in draft.classes or []})
    differing = []
    for draft in labelled:
        missing = sorted(set(union) - set(draft.classes or []))
        if missing:
            shown = ", ".join(map(printable, missing[:_SHOWN])) + (" ..." if len(missing) > _SHOWN else "")
            differing.append(f"{draft.split} lacks {format_count(len(missing), 'class', 'classes')}: {shown}")
    if differing and config.class_map == "equal":
        msg = f"the splits have different classes ({'; '.join(differing)})"
        hint = "Numbers would differ in meaning. Use --class-map union for one map over all, or pack each split on its own."
        raise SourceAmbiguous(msg, hint=hint)
    for draft in labelled if differing else []:
        number = {name: at for at, name in enumerate(union)}
        table = [number[name] for name in draft.classes or []]
        draft.labels = array("q", [table[label] for label in draft.labels])
        draft.classes = list(union)
        draft.as_imagefolder = False
        draft.why.append(f"one class map over all splits: {len(union)} classes ({'; '.join(differing)})")
    return drafts

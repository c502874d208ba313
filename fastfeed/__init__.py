"""fastfeed: small files become shards once; every epoch after that is sequential bytes, and what is broken has a name.

The door is cold: importing it loads no torch, numpy or Pillow. Each public name is loaded at its first use (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the table below opens, for type checkers and editors
    from fastfeed.archive.summary import InfoResult, info
    from fastfeed.auditor.audit import audit
    from fastfeed.auditor.result import AuditResult
    from fastfeed.config import Cache
    from fastfeed.errors import (
        DatasetError,
        DecodeError,
        DestinationError,
        FastfeedError,
        FastfeedWarning,
        SourceError,
        UsageError,
        WorkerDied,
    )
    from fastfeed.feed.dalioptions import DaliOptions
    from fastfeed.feed.dataset import PackedDataset
    from fastfeed.feed.decode.many import Views
    from fastfeed.feed.keeping import CachedDataset, cached
    from fastfeed.feed.loader import DataLoader
    from fastfeed.feed.opening import open
    from fastfeed.feed.standin import install, uninstall
    from fastfeed.packer.job import pack
    from fastfeed.packer.result import PackResult, UnpackResult
    from fastfeed.packer.sidecars import SidecarsResult, write_sidecars
    from fastfeed.packer.unpack import unpack
    from fastfeed.packer.verify import VerifyResult, verify
    from fastfeed.source.tarindex import IndexResult, index_tars

__version__ = "0.1.0"

_HOMES = {
    "AuditResult": "auditor.result",
    "Cache": "config",
    "CachedDataset": "feed.keeping",
    "DaliOptions": "feed.dalioptions",
    "DataLoader": "feed.loader",
    "DatasetError": "errors",
    "DecodeError": "errors",
    "DestinationError": "errors",
    "FastfeedError": "errors",
    "FastfeedWarning": "errors",
    "IndexResult": "source.tarindex",
    "InfoResult": "archive.summary",
    "PackResult": "packer.result",
    "PackedDataset": "feed.dataset",
    "SidecarsResult": "packer.sidecars",
    "SourceError": "errors",
    "UnpackResult": "packer.result",
    "UsageError": "errors",
    "VerifyResult": "packer.verify",
    "Views": "feed.decode.many",
    "WorkerDied": "errors",
    "audit": "auditor.audit",
    "cached": "feed.keeping",
    "index_tars": "source.tarindex",
    "info": "archive.summary",
    "install": "feed.standin",
    "open": "feed.opening",
    "pack": "packer.job",
    "uninstall": "feed.standin",
    "unpack": "packer.unpack",
    "verify": "packer.verify",
    "write_sidecars": "packer.sidecars",
}

__all__ = [
    "AuditResult",
    "Cache",
    "CachedDataset",
    "DaliOptions",
    "DataLoader",
    "DatasetError",
    "DecodeError",
    "DestinationError",
    "FastfeedError",
    "FastfeedWarning",
    "IndexResult",
    "InfoResult",
    "PackResult",
    "PackedDataset",
    "SidecarsResult",
    "SourceError",
    "UnpackResult",
    "UsageError",
    "VerifyResult",
    "Views",
    "WorkerDied",
    "__version__",
    "audit",
    "cached",
    "index_tars",
    "info",
    "install",
    "open",
    "pack",
    "uninstall",
    "unpack",
    "verify",
    "write_sidecars",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        msg = f"module 'fastfeed' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"fastfeed.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Sentences and numbers of a page."""

from fastfeed.auditor.result import AuditResult
from fastfeed.units import format_count, format_seconds, format_size


def percent(part: float) -> str:
    """Two figures, of a small part one: 31 %, 9.8 %, 0.2 %, 0.003 %; and 0 % for none."""
    share = 100 * part
    if share >= 10 or not share:  # noqa: PLR2004 - two figures
        return f"{share:.0f} %"
    return f"{share:.2g} %" if share >= 1 else f"{float(f'{share:.1g}'):.10f}".rstrip("0") + " %"


def headline(result: AuditResult) -> str:
    """How many samples are flagged."""
    new = " new" if result.compared is not None else ""
    looked = format_count(result.audited, "sample")
    if not result.flagged:
        return f"{looked}, and nothing{new} is wrong." if not result.found else f"{looked}, and none of them is flagged."
    share = f" ({percent(result.flagged / result.audited)})" if result.audited else ""
    return f"{result.flagged:,} of {looked}{share} {'has' if result.flagged == 1 else 'have'} something{new} to mend."


def subline(result: AuditResult) -> str:
    """What was audited."""
    size = f", {format_size(result.size_bytes)}" if result.size_bytes else ""
    part = "" if result.audited >= result.samples else f"; {result.audited:,} of its {format_count(result.samples, 'sample')}"
    fast = ", with --fast" if result.fast else ""
    workers = format_count(result.workers, "process", "processes")
    return f"{result.what}{part}{size}, in {format_seconds(result.seconds)} with {workers}{fast}"


def statements(result: AuditResult) -> list[str]:
    """What it costs, how sure it is, what was left out; the most important first."""
    told = [f"{text[:1].upper()}{text[1:]}." for text in result.costs]
    if result.errors:
        be = "sample has an error: it cannot be loaded, or is" if result.errors == 1 else (
            "samples have an error: they cannot be loaded, or are"
        )  # fmt: skip
        told.insert(0, f"{result.errors:,} {be} not what was stored.")
    if result.of_set:
        told.append(f"{format_count(result.of_set, 'finding')} about classes or tars.")
    if result.at_most is not None:
        told.append(f"With 95 % confidence at most {percent(result.at_most)} of all samples have an error.")
    if result.compared is not None:
        told.append(result.compared.sentence)
    if not result.complete:
        told.append("Time was up before all samples were looked at: what follows is a part.")
    return told

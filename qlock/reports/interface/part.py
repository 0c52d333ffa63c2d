"""One part of a report: a heading, sentences and a table, every number written out.

Does not live here: what the parts say (the modules beside), how they look (the members of ``reports``).
"""

from __future__ import annotations

from qlock.core.base import Base

Row = tuple[str, ...]


class Part(Base, frozen=True, kw_only=True):
    """One part of a report."""

    heading: str
    """Empty for the first part."""
    sentences: tuple[str, ...] = ()
    """Before the table."""
    columns: Row = ()
    rows: tuple[Row, ...] = ()
    remarks: tuple[str, ...] = ()
    """After the table."""
    is_detail: bool = False
    """Whether most readers pass over it."""

"""Finds the data directory: the one on the command line, or `log.dirs`, or `log.dir`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kohort.settings import SettingError


def data_directory(settings: Mapping[str, str], given: Path | None = None) -> Path | None:
    """Returns the data directory; None if none is given, SettingError if several or contradicting ones are."""
    name = next((name for name in ("log.dirs", "log.dir") if settings.get(name, "").strip()), None)
    if name is None:
        return given
    listed = [item.strip() for item in settings[name].split(",") if item.strip()]
    if len(listed) != 1:
        raise SettingError(f"{name} names {len(listed)} directories; the data is kept in one: name one")
    told = Path(listed[0])
    if given is not None and given.absolute() != told.absolute():
        raise SettingError(
            f"the data directory is given twice: {given}, and {name}={told}; leave one of them out"
        )
    return told

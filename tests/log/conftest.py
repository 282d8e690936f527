from __future__ import annotations

from pathlib import Path

import pytest

from kohort.log.storage.files import Directory, DiskDirectory
from kohort.log.storage.memory import MemoryDirectory


@pytest.fixture(params=["disk", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    """A directory on disk and one in memory: both must behave the same."""
    return DiskDirectory(tmp_path) if request.param == "disk" else MemoryDirectory()

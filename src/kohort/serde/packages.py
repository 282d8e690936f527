"""Imports the packages of the extra `serde` when they are used, and says how to install one that is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kohort.serde.errors import MissingPackage

_INSTALL = 'pip install "kohort[serde]"'
_ELSEWHERE = {"jsonschema": "pip install jsonschema", "referencing": "pip install jsonschema"}


def package(name: str, what_for: str) -> Any:
    """Returns a module; MissingPackage if it is not installed. `what_for` begins the sentence: "Avro needs …"."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        top = name.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != top:
            raise  # the package is there, and something that it needs itself is not
        install = _ELSEWHERE.get(top, _INSTALL)
        raise MissingPackage(
            f"{what_for} needs the package {top}, which is not installed: {install}"
        ) from error

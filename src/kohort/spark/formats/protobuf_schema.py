"""Finds a Protobuf message in what the options or the registry give: .proto text, a file, or a FileDescriptorSet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from kohort.serde.errors import WrongSchema
from kohort.serde.protobuf import compiled, message_named
from kohort.settings import SettingError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

MAIN = "schema.proto"


@dataclass(frozen=True, slots=True)
class FoundMessage:
    descriptor: Descriptor
    descriptors: bytes
    """A FileDescriptorSet with the message and all that it needs."""


def find_message(schema: str, references: Mapping[str, str], name: str | None, option: str) -> FoundMessage:
    """The message of this name in a schema; SettingError if it is not there. Without a name there must be one only.

    The schema is the text of a .proto file, the path of such a file (`*.proto`), or the path of a FileDescriptorSet,
    as `protoc --include_imports --descriptor_set_out` writes it.
    """
    try:
        files, main = _files(schema, references)
        pool = descriptor_pool.DescriptorPool()
        for file in files:
            pool.Add(file)
        descriptor = _message(pool.FindFileByName(main), name, option)
    except (WrongSchema, TypeError, KeyError) as error:
        raise SettingError(f"the Protobuf schema: {error}") from None
    return FoundMessage(descriptor, descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


def _files(schema: str, references: Mapping[str, str]) -> tuple[list[Any], str]:
    """The files of a schema, each after those that it imports, and the name of the one that was meant."""
    text = schema.strip()
    is_path = "\n" not in text and "{" not in text and ";" not in text and not references
    if not is_path or _is_base64(text):
        return compiled(MAIN, schema, references), MAIN
    path = Path(text)
    if not path.is_file():
        raise SettingError(f"the Protobuf schema {text} is neither .proto text nor a file that is there")
    if path.suffix == ".proto":
        return compiled(MAIN, path.read_text("utf-8"), {}), MAIN
    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file)
    except DecodeError:
        files = []
    if not files:
        raise SettingError(
            f"{text} is no FileDescriptorSet: write it with protoc --include_imports --descriptor_set_out={path.name}"
        )
    return files, files[-1].name


def _is_base64(text: str) -> bool:
    """Whether it is a descriptor as some clients register it; a path is hardly ever as long."""
    return len(text) > 40 and not Path(text).exists() and all(c.isalnum() or c in "+/=" for c in text)


def _message(file: Any, name: str | None, option: str) -> Descriptor:
    names = list(file.message_types_by_name)
    if name is None and len(names) > 1:
        raise SettingError(
            f"the Protobuf schema has several messages: set {option} to one of {', '.join(names)}"
        )
    return message_named(file, name)

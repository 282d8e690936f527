"""Protobuf records: generated classes, or messages whose schema comes from a registry when they are read.

A registry holds the text of .proto files, or, from some clients, base64 of a FileDescriptorProto. Texts are compiled by
`protoc` of the package grpcio-tools, in a process of its own: it is the real compiler, needs nothing else installed,
and its complaints can be read. Each schema has a descriptor pool of its own, so that two versions of a file can be
there at the same time.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from kohort.serde.errors import DataMismatch, WrongSchema
from kohort.serde.framing import frame_message, split_message
from kohort.serde.packages import package
from kohort.serde.registry import RegisteredSchema, SchemaReference
from kohort.serde.schemas import RegistryLike, SchemaIds, SerializerKeywords, of_kind, registry_of
from kohort.settings import SettingError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message
    from typing_extensions import TypeVar  # with `default`; every type checker brings it

    M = TypeVar("M", bound=Message, default=Message)
else:
    from typing import TypeVar

    M = TypeVar("M")

_PROTOC_S = 60
_KNOWN = ("google/protobuf/", "google/type/", "confluent/")
_CONFLUENT = {
    "confluent/meta.proto": """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option java_package = "io.confluent.protobuf";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """
syntax = "proto3";
package confluent.type;
option java_package = "io.confluent.protobuf.type";
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
""",
}


class ProtobufSerializer(Generic[M]):
    """Writes messages of a generated class.

    ProtobufSerializer(Order, registry="http://127.0.0.1:8081")

    With a registry the file that defines the class is registered at the first record of a topic, and before it the
    files that it imports, each under its own name (`skip_known_types=False`: also those of google/protobuf). Without
    one the bytes are the message alone.
    """

    def __init__(
        self, of: type[M], *, skip_known_types: bool = True, **keywords: Unpack[SerializerKeywords]
    ) -> None:
        package("google.protobuf.message", "Protobuf")
        if not _is_message_class(of):
            raise SettingError(f"a ProtobufSerializer needs a class that protoc has made, not {of!r}")
        self._class = of
        self._skips = skip_known_types
        self._ids = SchemaIds("PROTOBUF", keywords, self._references)
        descriptor: Any = of.DESCRIPTOR
        self._name = descriptor.full_name
        self._file: FileDescriptor = descriptor.file
        self._indexes = indexes_of(descriptor)
        self._text = text_of(self._file)

    def __call__(self, topic: str, message: M | None) -> bytes | None:
        if message is None:
            return None
        if not isinstance(message, self._class):
            raise DataMismatch(
                f"this ProtobufSerializer writes {self._name}, not objects of {type(message).__name__}"
            )
        try:
            data: bytes = message.SerializeToString()
        except Exception as error:
            raise DataMismatch(f"the message {self._name} cannot be written: {error}") from error
        ids = self._ids
        if ids.registry is None:
            return data
        if ids.uses_latest:
            return frame_message(ids.latest(topic, self._name).id, self._indexes) + data
        return frame_message(ids.id_of(topic, self._name, self._text), self._indexes) + data

    def _references(self) -> Sequence[SchemaReference]:
        return self._references_of(self._file)

    def _references_of(self, file: FileDescriptor) -> list[SchemaReference]:
        """Returns the references of a file, once its imports are registered; their subjects are their names."""
        registry, normalize = self._ids.registry, self._ids.normalize
        assert registry is not None
        found = []
        for imported in file.dependencies:
            name = imported.name
            if self._skips and name.startswith(_KNOWN):
                continue
            references = self._references_of(imported)
            text = text_of(imported)
            if self._ids.registers:
                registry.register(name, "PROTOBUF", text, references, normalize=normalize)
            there = registry.lookup(name, "PROTOBUF", text, references, normalize=normalize)
            found.append(SchemaReference(name, name, there.version or 1))
        return found


class ProtobufDeserializer(Generic[M]):
    """Reads messages into a generated class, or, without one, into classes made from the registry's schemas.

    ProtobufDeserializer(Order, registry="http://127.0.0.1:8081")

    With a registry a schema id and the message's place in its file stand before the message; a record with another
    message than the class's is refused. Without one the bytes are the message alone.
    """

    @overload
    def __init__(self: ProtobufDeserializer[Message], of: None = None, *, registry: RegistryLike) -> None: ...
    @overload
    def __init__(self, of: type[M], *, registry: RegistryLike | None = None) -> None: ...
    def __init__(self, of: Any = None, *, registry: RegistryLike | None = None) -> None:
        package("google.protobuf.message", "Protobuf")
        if of is not None and not _is_message_class(of):
            raise SettingError(f"a ProtobufDeserializer needs a class that protoc has made, not {of!r}")
        if of is None and registry is None:
            raise SettingError("a ProtobufDeserializer needs a generated class, or registry=…")
        self._class = of
        self._registry = registry_of(registry)
        self._classes: dict[tuple[int, tuple[int, ...]], Any] = {}

    def __call__(self, topic: str, data: bytes) -> M:
        if self._registry is None:
            return self._parse(self._class, data, "")
        schema_id, indexes, at = split_message(data)
        found = self._classes.get((schema_id, indexes))
        if found is None:
            found = self._class_for(schema_id, indexes)
        return self._parse(found, data[at:], f" (schema id {schema_id})")

    def _parse(self, kind: Any, data: bytes, where: str) -> M:
        message = kind()
        try:
            message.ParseFromString(data)
        except Exception as error:
            name = kind.DESCRIPTOR.full_name
            raise DataMismatch(f"the data is no Protobuf message {name}{where}: {error}") from error
        return message  # type: ignore[no-any-return]

    def _class_for(self, schema_id: int, indexes: tuple[int, ...]) -> Any:
        registry = self._registry
        assert registry is not None
        schema = of_kind(registry.schema(schema_id), "PROTOBUF", "ProtobufDeserializer")
        descriptor = message_at(descriptor_of(schema, registry.references_of(schema)), indexes, schema_id)
        found = self._class
        if found is None:
            found = class_of(descriptor)
        elif descriptor.name != found.DESCRIPTOR.name:
            raise DataMismatch(
                f"the record holds the message {descriptor.full_name} (schema id {schema_id}), and this "
                f"ProtobufDeserializer reads {found.DESCRIPTOR.full_name}"
            )
        self._classes[schema_id, indexes] = found
        return found


# --- schemas ---------------------------------------------------------------------------------------------


def descriptor_of(schema: RegisteredSchema, references: Mapping[str, RegisteredSchema]) -> FileDescriptor:
    """Returns the descriptor of a schema's file; `references` is what SchemaRegistry.references_of returns for it."""
    pool = package("google.protobuf.descriptor_pool", "Protobuf").DescriptorPool()
    name = f"schema_{schema.id}.proto"
    files = compiled(name, schema.text, {path: each.text for path, each in references.items()})
    try:
        for file in files:
            pool.Add(file)
        return pool.FindFileByName(name)  # type: ignore[no-any-return]
    except (TypeError, KeyError) as error:
        raise WrongSchema(f"schema id {schema.id} cannot be used as a Protobuf schema: {error}") from error


def message_at(file: FileDescriptor, indexes: Sequence[int], schema_id: int) -> Descriptor:
    """Returns the message at a path of indexes, which stands in every framed record."""
    proto = package("google.protobuf.descriptor_pb2", "Protobuf").FileDescriptorProto()
    file.CopyToProto(proto)
    kinds, name = proto.message_type, proto.package
    for index in indexes:
        if not 0 <= index < len(kinds):
            raise DataMismatch(
                f"the record's message index {index} is not in schema id {schema_id}, which has {len(kinds)} messages "
                f"there"
            )
        name = f"{name}.{kinds[index].name}" if name else kinds[index].name
        kinds = kinds[index].nested_type
    return file.pool.FindMessageTypeByName(name)


def message_named(file: FileDescriptor, name: str | None) -> Descriptor:
    """Returns a message of a file by its name, with or without its package; None: the first one."""
    top = list(file.message_types_by_name.values())
    if not top:
        raise WrongSchema("the Protobuf schema defines no message")
    if name is None:
        return top[0]
    prefix = f"{file.package}." if file.package else ""
    for full in (name, prefix + name):
        try:
            found: Descriptor = file.pool.FindMessageTypeByName(full)
        except KeyError:
            continue
        return found
    names = ", ".join(each.full_name for each in top)
    raise WrongSchema(f"the Protobuf schema has no message {name}; it has {names}")


def class_of(descriptor: Descriptor) -> type[Message]:
    """Returns the class of a message."""
    found: type[Message] = package("google.protobuf.message_factory", "Protobuf").GetMessageClass(descriptor)
    return found


def indexes_of(descriptor: Descriptor) -> tuple[int, ...]:
    """Returns the path of a message within its file, as it stands in framed records."""
    path: list[int] = []
    inner = descriptor
    while inner.containing_type is not None:
        path.insert(0, [each.name for each in inner.containing_type.nested_types].index(inner.name))
        inner = inner.containing_type
    path.insert(0, list(inner.file.message_types_by_name).index(inner.name))
    return tuple(path)


def text_of(file: FileDescriptor) -> str:
    """Returns what is registered for a file: base64 of its descriptor, as Confluent's Python client registers it."""
    return base64.standard_b64encode(file.serialized_pb).decode("ascii")


def compiled(name: str, text: str, imports: Mapping[str, str]) -> list[FileDescriptorProto]:
    """Returns a file and all that it imports, a file after its imports; texts are .proto, or base64 of a descriptor."""
    given = {path: _from_base64(path, each) for path, each in {**imports, name: text}.items()}
    ready = {path: file for path, file in given.items() if file is not None}
    texts = {path: each for path, each in {**imports, name: text}.items() if path not in ready}
    if texts:
        ready.update(_protoc(texts, _complete(ready)))
    return _order(ready, [name])


def _complete(files: Mapping[str, FileDescriptorProto]) -> dict[str, FileDescriptorProto]:
    """Returns the files whose imports are there too, and these imports: protoc takes no others."""
    found: dict[str, FileDescriptorProto] = {}
    for name in files:
        try:
            found.update((file.name, file) for file in _order(files, [name]))
        except WrongSchema:  # it imports a text; that text cannot import it in turn
            continue
    return found


def _order(files: Mapping[str, FileDescriptorProto], wanted: Iterable[str]) -> list[FileDescriptorProto]:
    """Returns files after those that they import; well-known ones that are not among them come from the packages."""
    done: dict[str, FileDescriptorProto] = {}
    begun: set[str] = set()

    def add(name: str) -> None:
        if name in begun:
            return
        begun.add(name)
        file = files[name] if name in files else _well_known(name)
        for imported in file.dependency:
            add(imported)
        done[name] = file

    for name in wanted:
        add(name)
    return list(done.values())


def _well_known(name: str) -> FileDescriptorProto:
    """Returns a file that every registry takes for known, so that schemas do not refer to it."""
    if name in _CONFLUENT:
        return _protoc({name: _CONFLUENT[name]}, {})[name]
    proto = package("google.protobuf.descriptor_pb2", "Protobuf").FileDescriptorProto()
    try:
        if not name.startswith("google/"):
            raise ImportError(name)
        import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(proto)
    except ImportError as error:
        raise WrongSchema(f"the Protobuf schema imports {name}, which is not among its references") from error
    return proto  # type: ignore[no-any-return]


def _from_base64(name: str, text: str) -> FileDescriptorProto | None:
    """Returns the descriptor that a text is base64 of, under this name; None for the text of a .proto file."""
    proto = package("google.protobuf.descriptor_pb2", "Protobuf").FileDescriptorProto()
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    try:
        proto.ParseFromString(data)
    except Exception as error:
        raise WrongSchema(f"the Protobuf schema {name} is base64, but of no descriptor: {error}") from error
    proto.name = name
    return proto  # type: ignore[no-any-return]


def _protoc(
    texts: Mapping[str, str], ready: Mapping[str, FileDescriptorProto]
) -> dict[str, FileDescriptorProto]:
    """Compiles .proto texts, which may import each other and the files that are ready."""
    tools = package("grpc_tools", "a Protobuf schema of a registry")
    pb2 = package("google.protobuf.descriptor_pb2", "Protobuf")
    with tempfile.TemporaryDirectory(prefix="kohort-protoc-") as folder:
        source = Path(folder, "source")
        for path, text in {**_CONFLUENT, **texts}.items():
            file = source / _checked(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        out = Path(folder, "out")
        includes = [source, Path(tools.__path__[0], "_proto"), *_google_types()]
        command = [sys.executable, "-m", "grpc_tools.protoc", *(f"-I{each}" for each in includes)]
        if ready:
            known = Path(folder, "known")
            known.write_bytes(pb2.FileDescriptorSet(file=list(ready.values())).SerializeToString())
            command.append(f"--descriptor_set_in={known}")
        command += ["--include_imports", f"--descriptor_set_out={out}", *texts]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=_PROTOC_S, check=False)
        except subprocess.TimeoutExpired as late:
            raise WrongSchema(f"protoc was not done with the Protobuf schema after {_PROTOC_S} s") from late
        if ran.returncode:
            words = "; ".join(line for line in ran.stderr.splitlines() if "warning" not in line.lower())
            raise WrongSchema(f"the Protobuf schema cannot be compiled: {words[:500]}")
        files = pb2.FileDescriptorSet.FromString(out.read_bytes())
    return {each.name: each for each in files.file}


def _checked(path: str) -> str:
    """Returns a file name of a registry if it stays within the folder that it is written to."""
    parts = PurePosixPath(path)
    if (
        parts.is_absolute()
        or ".." in parts.parts
        or "\\" in path
        or ":" in path
        or "\0" in path
        or not parts.parts
    ):
        raise WrongSchema(f"the Protobuf schema imports {path!r}, which is no relative path to a .proto file")
    return path


def _google_types() -> list[Path]:
    """Returns the folder with google/type/*.proto, if the package googleapis-common-protos is installed."""
    found = find_spec("google.type")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    return [Path(place).parents[1] for place in places]


def _is_message_class(kind: Any) -> bool:
    message = package("google.protobuf.message", "Protobuf").Message
    return isinstance(kind, type) and issubclass(kind, message) and hasattr(kind, "DESCRIPTOR")

"""The notation of schema/, shown on a small API that does not exist, and the files that are really there."""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kohort.wire import messages
from kohort.wire.compiler.compile import Codec, DataCodec, codec, data_codec
from kohort.wire.compiler.generate import (
    READY,
    READY_DATA,
    codec_source,
    codecs_source,
    data_codec_source,
    init_source,
    module_source,
)
from kohort.wire.compiler.notation import (
    NEVER,
    ApiSpec,
    DataSpec,
    FieldSpec,
    NotationError,
    Versions,
    all_apis,
    all_data,
    api,
    data,
    parse_schema,
    parse_versions,
    schema,
)
from kohort.wire.errors import BadFrame

SCHEMA = Path(str(files("kohort.wire"))) / "schema"
MESSAGES = Path(messages.__path__[0])
CODECS = MESSAGES.with_name("codecs")

TINY = """\
# Asks a parrot
# to speak.
api 9999 Parrot 1-6
flexible 4+          # compact from here on

request
  everywhere         int32
  since_three        bool 3+ = true
  until_two          int8 -2 = -1
  two_to_five        uint16 2-5
  four_alone         float64 4
  nullable           string?
  nullable_later     string?3+ = null
  cage               Cage? 4+ = null
    bars             uint32
    door             Door 5+ tag 0
      lock           string = open
      keys           [uuid] tag 1
  doors              [Door] 5+ tag 3
  sizes              [int16]?5+
  names              [string] 2+

response
  birds              [Bird]
    name             string
    eggs             [Egg] 3+
      weight         int64
  song               records?
  picture            bytes
  favourite          Bird
"""


EGG = """\
# The value of an egg's record.
value 7 Egg 0-3
flexible 2+

  weight             int32 = -1
  spots              [Spot] 1+
    colour           string
    sizes            [int16]
  shell              Shell 1+
    hard             bool
  mother             string? 2+ = null tag 0
"""


def tiny_fields(struct: str) -> dict[str, FieldSpec]:
    return {spec.name: spec for spec in parse_schema(TINY, "parrot").structs[struct].fields}


def test_the_head_of_a_file() -> None:
    parrot = parse_schema(TINY, "parrot")
    assert isinstance(parrot, ApiSpec)
    assert (parrot.key, parrot.name, parrot.module) == (9999, "Parrot", "parrot")
    assert parrot.purpose == "Asks a parrot to speak."
    assert (parrot.versions, parrot.flexible) == (Versions(1, 6), Versions(4, 6))
    assert (parrot.request.name, parrot.response.name) == ("ParrotRequest", "ParrotResponse")
    assert list(parrot.structs) == ["ParrotRequest", "ParrotResponse", "Cage", "Door", "Bird", "Egg"]


@pytest.mark.parametrize(
    ("struct", "name", "expected"),
    [
        # name: type, is it an array, versions, in which it may be null, default, tag
        ("ParrotRequest", "everywhere", ("int32", False, Versions(1, 6), NEVER, None, None)),
        ("ParrotRequest", "since_three", ("bool", False, Versions(3, 6), NEVER, "true", None)),
        ("ParrotRequest", "until_two", ("int8", False, Versions(1, 2), NEVER, "-1", None)),
        ("ParrotRequest", "two_to_five", ("uint16", False, Versions(2, 5), NEVER, None, None)),
        ("ParrotRequest", "four_alone", ("float64", False, Versions(4, 4), NEVER, None, None)),
        ("ParrotRequest", "nullable", ("string", False, Versions(1, 6), Versions(1, 6), None, None)),
        ("ParrotRequest", "nullable_later", ("string", False, Versions(1, 6), Versions(3, 6), "null", None)),
        ("ParrotRequest", "cage", ("Cage", False, Versions(4, 6), Versions(4, 6), "null", None)),
        ("ParrotRequest", "doors", ("Door", True, Versions(5, 6), NEVER, None, 3)),
        ("ParrotRequest", "sizes", ("int16", True, Versions(1, 6), Versions(5, 6), None, None)),
        # The versions of a struct are those of the field that describes it.
        ("Cage", "bars", ("uint32", False, Versions(4, 6), NEVER, None, None)),
        ("Door", "lock", ("string", False, Versions(5, 6), NEVER, "open", None)),
        ("Door", "keys", ("uuid", True, Versions(5, 6), NEVER, None, 1)),
        ("Egg", "weight", ("int64", False, Versions(3, 6), NEVER, None, None)),
        ("ParrotResponse", "song", ("records", False, Versions(1, 6), Versions(1, 6), None, None)),
    ],
)
def test_what_a_field_says(struct: str, name: str, expected: tuple[Any, ...]) -> None:
    spec = tiny_fields(struct)[name]
    assert (spec.type, spec.is_array, spec.versions, spec.nullable, spec.default, spec.tag) == expected


def test_fields_after_a_struct_belong_to_the_one_around_it() -> None:
    assert list(tiny_fields("ParrotResponse")) == ["birds", "song", "picture", "favourite"]
    assert list(tiny_fields("Bird")) == ["name", "eggs"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Versions(2, 8)),
        ("none", NEVER),
        ("5+", Versions(5, 8)),
        ("0+", Versions(2, 8)),
        ("-4", Versions(2, 4)),
        ("3-5", Versions(3, 5)),
        ("5-99", Versions(5, 8)),
        ("4", Versions(4, 4)),
    ],
)
def test_ranges_of_versions(text: str, expected: Versions) -> None:
    assert parse_versions(text, Versions(2, 8)) == expected


HEAD = "# A test.\napi 9999 Parrot 1-6\nflexible 4+\nrequest\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "schema/parrot.txt: no line says what it describes"),
        ("request\n", "line 1: the first line that counts begins with api, key, value, data or bare"),
        ("\n\napi 1 Parrot\n", "line 3: expected `api N Name FIRST-LAST`"),
        ("api one Parrot 1-6\n", "line 1: expected `api N Name FIRST-LAST`"),
        ("value Parrot 1-6\n", "line 1: expected `value N Name FIRST-LAST`"),
        ("data 1 Parrot 1-6\n", "line 1: expected `data Name FIRST-LAST`"),
        ("data Parrot 1-6\nrequest\n", "line 2: cannot read the field 'request'"),
        ("bare Parrot 1-6\n  a int8 7+\n", "line 2: '7+' has no version within 1-6"),
        ("api 1 Parrot 1..6\n", "line 1: '1..6' is not a range of versions"),
        ("api 1 Parrot 6-1\n", "line 1: '6-1' has no version within 0-32767"),
        ("api 1 Parrot 1-6\nflexible x\n", "line 2: 'x' is not a range of versions"),
        ("api 1 Parrot 1-6\n  stray int8\n", "line 2: this indentation belongs to no struct"),
        (HEAD + "  a\n", "line 5: cannot read the field 'a'"),
        (HEAD + "  A int8\n", "line 5: cannot read the field 'A int8'"),
        (HEAD + "  a int8\n  b [int8\n", "line 6: cannot read the field 'b [int8'"),
        (HEAD + "  a int8]\n", "line 5: cannot read the field 'a int8]'"),
        (HEAD + "  a int8 3+ tag\n", "line 5: cannot read the field 'a int8 3+ tag'"),
        (HEAD + "  a int24\n", "line 5: 'int24' is not a type"),
        (HEAD + "  a int8\n      b int8\n", "line 6: this indentation belongs to no struct"),
        (HEAD + "  a int8 7+\n", "line 5: '7+' has no version within 1-6"),
        (HEAD + "  a A -3\n    b int8 4+\n", "line 6: '4+' has no version within 1-3"),
        (HEAD + "  a int8\n  a int16\n", "line 6: ParrotRequest has a field 'a' already"),
        (HEAD + "  a int8 3+ tag 0\n", "line 5: 'a' has a tag in a version that is not flexible"),
        (HEAD + "  a int8 4+ tag 0\n  b int8 4+ tag 0\n", "line 6: ParrotRequest has a tag 0 already"),
        (
            HEAD + "  a A -3\n    c int8\n  b A\n",
            "line 7: A is described above for fewer versions than 'b' has",
        ),
        (HEAD + "  a int8 = x\n", "line 5: 'x' is no default for 'a'"),
        (HEAD + "  a bool = 1\n", "line 5: '1' is no default for 'a'"),
        (HEAD + "  a string = null\n", "line 5: 'null' is no default for 'a'"),
        (HEAD + "  a [int8] = 1\n", "line 5: '1' is no default for 'a'"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(text: str, complaint: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_schema(text, "parrot")
    assert str(caught.value) == complaint or str(caught.value) == f"schema/parrot.txt {complaint}"


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that would be generated for the small API, as if it were in messages/."""
    module = ModuleType("kohort.wire.messages.parrot")
    exec(module_source(parse_schema(TINY, "parrot")), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def parrot_codec(version: int) -> Codec:
    spec = parse_schema(TINY, "parrot")
    assert isinstance(spec, ApiSpec)
    return Codec(spec, version)


@pytest.fixture
def egg(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that would be generated for the small record."""
    module = ModuleType("kohort.wire.messages.egg")
    exec(module_source(parse_schema(EGG, "egg")), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def egg_codec(version: int, text: str = EGG) -> DataCodec:
    spec = parse_schema(text, "egg")
    assert isinstance(spec, DataSpec)
    return DataCodec(spec, version)


def test_the_head_of_a_record() -> None:
    egg = parse_schema(EGG, "egg")
    assert isinstance(egg, DataSpec)
    assert (egg.name, egg.record_type, egg.prefix, egg.versions) == ("Egg", 7, "version", Versions(0, 3))
    assert list(egg.structs) == ["Egg", "Spot", "Shell"]


def test_the_structs_of_a_record_are_named_tuples_with_defaults(egg: ModuleType) -> None:
    assert egg.Egg() == (-1, (), egg.Shell(False), None)
    assert hash(egg.Egg()) == hash(egg.Egg(-1))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "0000 00000007"),
        (1, "0001 00000007 00000001 0001 78 00000002 0001 ffff 01"),
        (2, "0002 00000007 02 02 78 03 0001 ffff 00 01 00  01 00 04 03 6d6f"),
    ],
)
def test_a_record_begins_with_its_version(egg: ModuleType, version: int, expected: str) -> None:
    written = egg.Egg(7, (egg.Spot("x", (1, -1)),), egg.Shell(True), "mo")
    body = bytes.fromhex(expected.replace("01 00 04 03", "01 00 03 03"))
    assert egg_codec(version).encode(written) == body
    read = written if version == 2 else written._replace(mother=None)
    if version == 0:
        read = egg.Egg(7, shell=None)
    assert egg_codec(version).decode(body) == read
    assert egg_codec(version).decode(body + b"added later") == read
    with pytest.raises(BadFrame):
        egg_codec(version).decode(body[:-1])


@pytest.mark.parametrize(
    ("head", "before"), [("key 7 Egg 0-3", "0007"), ("data Egg 0-3", "0000"), ("bare Egg 0-3", "")]
)
def test_what_stands_before_a_format_of_its_own(egg: ModuleType, head: str, before: str) -> None:
    made = egg_codec(0, EGG.replace("value 7 Egg 0-3", head))
    assert made.encode(egg.Egg(7)) == bytes.fromhex(before + "00000007")
    assert made.decode(bytes.fromhex(before + "00000007")).weight == 7


def test_a_new_message_has_the_defaults(parrot: ModuleType) -> None:
    assert repr(parrot.ParrotRequest()) == (
        "ParrotRequest(everywhere=0, since_three=True, until_two=-1, two_to_five=0, four_alone=0.0, nullable='', "
        "nullable_later=None, cage=None, doors=[], sizes=None, names=[])"
    )
    assert repr(parrot.Door()) == "Door(lock='open', keys=[])"
    assert parrot.ParrotResponse().favourite == parrot.Bird()


def test_a_classic_version_byte_by_byte(parrot: ModuleType) -> None:
    message = parrot.ParrotRequest(everywhere=-2, nullable="hé", sizes=[1, -1], names=["a", ""])
    body = bytes.fromhex("fffffffeff00000003 68c3a9000000000002 0001 ffff00000002 0001 61 0000")
    assert b"".join(parrot_codec(2).encode_request(message)) == body
    # What is null by default reads back as the empty string that version 2 has to send for it.
    message.nullable_later = ""
    assert parrot_codec(2).decode_request(memoryview(body), 0) == message


def test_a_flexible_version_byte_by_byte(parrot: ModuleType) -> None:
    key = bytes(range(16))
    door = parrot.Door(lock="x", keys=[key])
    message = parrot.ParrotRequest(7, False, two_to_five=65535, nullable=None, nullable_later="n")
    message.cage, message.doors = parrot.Cage(2**32 - 1, door), [parrot.Door()]
    inner = "02 7801 01 11 02" + key.hex()  # lock; one tag: number 1, 17 bytes, one key
    body = bytes.fromhex(
        "00000007 00 ffff 00 02 6e"
        f"01 ffffffff  01 00 {len(bytes.fromhex(inner)):02x} {inner}"  # cage: there, bars; tag 0 is the door
        "00 01"  # sizes is null, names is empty
        "01 03 07  02 05 6f70656e 00"  # one tag: number 3, 7 bytes, one door whose lock is `open`
    )
    assert b"".join(parrot_codec(5).encode_request(message)) == body
    assert parrot_codec(5).decode_request(memoryview(body), 0) == message


def test_an_unknown_tag_inside_a_tagged_struct_is_read_over(parrot: ModuleType) -> None:
    before = bytes.fromhex("00000007 00 0000 00 00 ff 00 01")
    got: Any = parrot_codec(5).decode_request(
        memoryview(before + bytes.fromhex("01 03 08 02 02 78 01 63 02 aabb")), 0
    )
    assert got.doors == [parrot.Door("x")]
    with pytest.raises(BadFrame, match="doors has a wrong length"):
        parrot_codec(5).decode_request(
            memoryview(before + bytes.fromhex("01 03 07 02 02 78 01 63 02 aabb")), 0
        )


def test_records_are_views_on_the_way_in_and_stay_whole_on_the_way_out(parrot: ModuleType) -> None:
    class FileSlice:
        def __len__(self) -> int:
            return 300

    song = FileSlice()
    chunks = parrot_codec(6).encode_response(parrot.ParrotResponse(song=song, picture=b"p"))
    assert [chunk for chunk in chunks if not isinstance(chunk, bytes)] == [song]
    at = chunks.index(song)
    assert b"".join(chunks[:at]) == bytes.fromhex("01 ad02")  # no birds; 301 as a varint
    frame = memoryview(bytearray(b"".join(chunks[:at]) + b"s" * 300 + b"".join(chunks[at + 1 :])))
    got: Any = parrot_codec(6).decode_response(frame, 0)
    assert isinstance(got.song, memoryview)
    assert got.song == b"s" * 300
    assert got.song.obj is frame.obj
    assert got.picture == b"p"
    assert isinstance(got.picture, bytes)


def test_a_message_may_begin_anywhere_in_the_buffer(parrot: ModuleType) -> None:
    message = parrot.ParrotResponse(birds=[parrot.Bird("ara")], song=b"")
    body = b"".join(parrot_codec(1).encode_response(message))
    assert parrot_codec(1).decode_response(memoryview(b"header" + body), 6) == message


def schema_files() -> list[Path]:
    return sorted(SCHEMA.glob("*.txt"))


def test_there_is_a_file_for_every_api_and_every_format_and_only_one() -> None:
    assert len(schema_files()) == len(all_apis()) + len(all_data())
    assert len(all_apis()) > 30
    assert list(all_apis()) == sorted(all_apis())


@pytest.mark.parametrize("path", schema_files(), ids=lambda path: path.stem)
def test_a_schema_file_parses_and_is_named_after_what_it_describes(path: Path) -> None:
    spec = schema(path.stem)
    assert re.sub(r"(?<=[a-z])(?=[A-Z])", "_", spec.name).lower() == path.stem
    assert spec.purpose.endswith(".")
    if isinstance(spec, ApiSpec):
        assert all_apis()[spec.key].name == spec.name


@pytest.mark.parametrize("path", schema_files(), ids=lambda path: path.stem)
def test_the_classes_are_those_that_the_schema_gives(path: Path) -> None:
    generated = (MESSAGES / f"{path.stem}.py").read_text("utf-8")
    assert generated == module_source(schema(path.stem)), "stale: run `make messages`"


def test_messages_holds_nothing_else() -> None:
    wanted = {"__init__.py"} | {f"{path.stem}.py" for path in schema_files()}
    assert {path.name for path in MESSAGES.glob("*.py")} == wanted
    assert (MESSAGES / "__init__.py").read_text("utf-8") == init_source()


@pytest.mark.parametrize("module", READY)
def test_a_codec_that_is_ready_is_the_one_that_would_be_compiled(module: str) -> None:
    spec = api(module)
    assert (CODECS / f"{module}.py").read_text("utf-8") == codec_source(spec), "stale: run `make messages`"
    ready, compiled = codec(spec.key, spec.versions.last), Codec(spec, spec.versions.last)
    assert ready.decode_response.__module__ == f"kohort.wire.codecs.{module}"
    assert (ready.flexible, ready.response_header_is_flexible) == (
        compiled.flexible,
        compiled.response_header_is_flexible,
    )
    for one, other in (
        (ready.encode_request, compiled.encode_request),
        (ready.decode_response, compiled.decode_response),
    ):
        assert one.__code__.co_code == other.__code__.co_code
        assert one.__code__.co_consts == other.__code__.co_consts
    assert ready.decode_request.__code__.co_code == compiled.decode_request.__code__.co_code


@pytest.mark.parametrize(("module", "version"), READY_DATA)
def test_a_codec_of_a_format_that_is_ready_is_the_one_that_would_be_compiled(
    module: str, version: int
) -> None:
    spec = data(module)
    source = (CODECS / f"{module}_v{version}.py").read_text("utf-8")
    assert source == data_codec_source(spec, version), "stale: run `make messages`"
    ready, compiled = data_codec(module, version), DataCodec(spec, version)
    assert ready.decode.__module__ == f"kohort.wire.codecs.{module}_v{version}"
    for one, other in ((ready.encode, compiled.encode), (ready.decode, compiled.decode)):
        assert one.__code__.co_code == other.__code__.co_code
        assert one.__code__.co_consts == other.__code__.co_consts


def test_codecs_holds_nothing_else() -> None:
    assert {path.name for path in CODECS.glob("*.py")} == {
        "__init__.py",
        *(f"{module}.py" for module in READY),
        *(f"{module}_v{version}.py" for module, version in READY_DATA),
    }
    assert (CODECS / "__init__.py").read_text("utf-8") == codecs_source()


@pytest.mark.parametrize(("api_key", "version"), [(9999, 0), (0, 2), (0, 14), (18, 5), (-1, 0)])
def test_an_api_or_version_without_a_layout_has_no_codec(api_key: int, version: int) -> None:
    with pytest.raises(KeyError):
        codec(api_key, version)


@pytest.mark.parametrize("version", [-1, 5])
def test_a_format_has_no_codec_in_a_version_without_a_layout(version: int) -> None:
    with pytest.raises(KeyError):
        data_codec("offset_commit_value", version)


def test_a_codec_has_four_functions_and_no_other() -> None:
    produce = codec(0, 9)
    assert produce.decode_request is produce.decode_request
    with pytest.raises(AttributeError, match="decode_header"):
        produce.decode_header  # noqa: B018

"""Tells who a client with a certificate is: its distinguished name as Java prints it, and the rules that map names.

A certificate's subject becomes text by RFC 2253, the last part first: `CN=alice,OU=Tests,O=Kohort`. Java prints only
nine attributes by their names; any other one is printed as its OID and its encoding in hex, an e-mail address too.
`ssl.principal.mapping.rules` makes a name for ACLs of that text:

    rules = parse_mapping_rules("RULE:^CN=([^,]*),.*$/$1/L,DEFAULT")
    mapped_name(rules, "CN=Alice,OU=Tests,O=Kohort")  # alice
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kohort.settings import SettingError

RULES_SETTING = "ssl.principal.mapping.rules"


class BadCertificate(ValueError):
    """The bytes are not a certificate in DER."""


# --- distinguished names -------------------------------------------------------------------------------

_KEYWORDS = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}  # fmt: skip
_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E
_STRINGS = frozenset({_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP})
_VERSION, _SEQUENCE, _SET, _OID, _EXTENSIONS, _OCTETS, _BOOLEAN = 0xA0, 0x30, 0x31, 0x06, 0xA3, 0x04, 0x01
_ALTERNATIVE_NAMES = "2.5.29.17"
_ESCAPED = frozenset(',=+<>#;"\\')


def subject_name(certificate: bytes) -> str:
    """Returns the subject of a certificate (DER) as Java's X500Principal.getName prints it."""
    subject = _Fields(certificate).subject
    parts = []
    for tag, rdn, _ in _elements(subject):
        _expect(tag, _SET)
        parts.append(
            "+".join(_attribute(content) for tag, content, _ in _elements(rdn) if _expect(tag, _SEQUENCE))
        )
    return ",".join(reversed(parts))


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Returns the subject's alternative names of a certificate (DER), each as it is encoded."""
    for tag, content, _ in _elements(_Fields(certificate).extensions):
        _expect(tag, _SEQUENCE)
        fields = [field for field in _elements(content) if field[0] != _BOOLEAN]  # whether it is critical
        if len(fields) == 2 and _oid(fields[0][1]) == _ALTERNATIVE_NAMES:
            _expect(fields[1][0], _OCTETS)
            names = _one(fields[1][1], _SEQUENCE)
            return frozenset(whole for _, _, whole in _elements(names))
    return frozenset()


class _Fields:
    """The fields of a certificate that are wanted, still encoded."""

    __slots__ = ("extensions", "subject")

    def __init__(self, certificate: bytes) -> None:
        signed = _one(certificate, _SEQUENCE)
        fields = list(_elements(_first(signed, _SEQUENCE)))
        if fields and fields[0][0] == _VERSION:
            fields = fields[1:]
        if len(fields) < 6:  # serial number, algorithm, issuer, validity, subject, public key
            raise BadCertificate("the certificate ends too early")
        _expect(fields[4][0], _SEQUENCE)
        self.subject = fields[4][1]
        found = next((content for tag, content, _ in fields[6:] if tag == _EXTENSIONS), None)
        self.extensions = b"" if found is None else _one(found, _SEQUENCE)


def _attribute(encoded: bytes) -> str:
    parts = list(_elements(encoded))
    if len(parts) != 2 or parts[0][0] != _OID:
        raise BadCertificate("an attribute of the subject is not a type and a value")
    oid, (tag, value, whole) = _oid(parts[0][1]), parts[1]
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or oid}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    """Returns a value as RFC 2253 writes it; blanks at both ends are escaped one by one, as Java does."""
    blanks = " \r"
    lead = len(text) - len(text.lstrip(blanks))
    trail = len(text.rstrip(blanks))
    return "".join(
        "\\00" if char == "\0" else f"\\{char}" if char in _ESCAPED or not lead <= at < trail else char
        for at, char in enumerate(text)
    )


# --- DER -----------------------------------------------------------------------------------------------


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields the elements that follow each other: tag, content, and the whole with both."""
    position, end = 0, len(data)
    while position < end:
        begin = position
        if end - position < 2:
            raise BadCertificate("an element has no length")
        tag, size = data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or end - position < count:
                raise BadCertificate("an element has a wrong length")
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        if end - position < size:
            raise BadCertificate("an element ends too early")
        yield tag, data[position : position + size], data[begin : position + size]
        position += size


def _first(data: bytes, tag: int) -> bytes:
    for found, content, _ in _elements(data):
        _expect(found, tag)
        return content
    raise BadCertificate("an element is missing")


def _one(data: bytes, tag: int) -> bytes:
    found = list(_elements(data))
    if len(found) != 1:
        raise BadCertificate(f"{len(found)} elements instead of one")
    _expect(found[0][0], tag)
    return found[0][1]


def _expect(found: int, tag: int) -> bool:
    if found != tag:
        raise BadCertificate(f"an element has the tag {found:#x} instead of {tag:#x}")
    return True


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise BadCertificate("an object identifier ends too early")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


# --- mapping rules -------------------------------------------------------------------------------------

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER = re.compile(_RULE)
_REPLACEMENT = re.compile(r"\\(.)|\$(\d+)|\$\{([a-zA-Z][a-zA-Z0-9]*)\}|(\$|\\)|([^$\\]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MappingRule:
    """One rule: names that its pattern matches as a whole become its replacement. Without a pattern: DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: tuple[str | int, ...] = ()
    """Texts, and numbers of groups."""
    case: str = ""
    """L, U or nothing."""

    def apply(self, name: str) -> str | None:
        """Returns what the name becomes; None if the rule is not for it."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._expanded, name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _expanded(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.replacement)


def parse_mapping_rules(text: str, what: str = RULES_SETTING) -> tuple[MappingRule, ...]:
    """Reads `DEFAULT` and `RULE:regex/replacement/[L|U]`, separated by commas; SettingError says what is wrong."""
    rules = []
    for found in _SPLITTER.finditer(text.strip()):
        rule = found[1]
        parsed = _PARSER.match(rule)
        if parsed is None or parsed.end() != len(rule):
            raise SettingError(
                f"{what}: invalid rule {rule!r}; a rule is DEFAULT or RULE:regex/replacement/ with L, U or nothing "
                "behind it, for example RULE:^CN=([^,]*),.*$/$1/L"
            )
        if parsed[1] is not None:
            rules.append(MappingRule())
        elif parsed[2] is not None:
            rules.append(_rule_of(parsed[2], parsed[3], parsed[4], what))
    return tuple(rules)


def mapped_name(rules: Sequence[MappingRule], name: str) -> str | None:
    """Returns what the first rule that is for the name makes of it; None if none is."""
    for rule in rules:
        mapped = rule.apply(name)
        if mapped is not None:
            return mapped
    return None


def _rule_of(regex: str, replacement: str, case: str, what: str) -> MappingRule:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # for what Java reads in another way, such as [a-z&&[^b]]
            pattern = re.compile(re.sub(r"(?<!\\)\(\?<(?=[a-zA-Z])", "(?P<", regex))
    except (re.error, Warning) as error:
        raise SettingError(f"{what}: the regular expression {regex!r} cannot be used here: {error}") from None
    return MappingRule(pattern, tuple(_parts_of(replacement, pattern, what)), case)


def _parts_of(replacement: str, pattern: re.Pattern[str], what: str) -> Iterator[str | int]:
    """Yields the parts of a replacement in Java's notation: a group that the pattern lacks is meant literally."""
    for found in _REPLACEMENT.finditer(replacement):
        escaped, number, name, wrong, text = found.groups()
        if wrong is not None or (name is not None and name not in pattern.groupindex):
            raise SettingError(
                f"{what}: the replacement {replacement!r} has a {found[0]} that is no group; write \\{found[0]}"
            )
        if number is not None:
            yield from _group_or_text(number, pattern, replacement, what)
        elif name is not None:
            yield pattern.groupindex[name]
        else:
            yield escaped if escaped is not None else text


def _group_or_text(number: str, pattern: re.Pattern[str], replacement: str, what: str) -> Iterator[str | int]:
    """Yields a group by the longest number that the pattern has, and the digits behind it."""
    for size in range(len(number), 0, -1):
        if int(number[:size]) <= pattern.groups and (size == 1 or number[0] != "0"):
            yield int(number[:size])
            if size < len(number):
                yield number[size:]
            return
    if not pattern.groups:
        raise SettingError(
            f"{what}: the replacement {replacement!r} names a group, but the expression has none"
        )
    yield f"${number}"

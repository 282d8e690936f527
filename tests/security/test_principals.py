"""Names in certificates as Java prints them, and the rules that map them.

What Java prints was compared for 300 random certificates by hand (javax.security.auth.x500.X500Principal.getName); the
rows here are some of them. The property tests compare with `cryptography`, which prints RFC 4514.
"""

from __future__ import annotations

import datetime
import re

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.security.principals import (
    BadCertificate,
    alternative_names,
    mapped_name,
    parse_mapping_rules,
    subject_name,
)
from kohort.settings import SettingError

KEY = ec.generate_private_key(ec.SECP256R1())
CN, ORG, OU, DC = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.DOMAIN_COMPONENT,
)


def certificate_of(name: x509.Name, *hosts: str) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(CN, "the issuer")]))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(datetime.datetime(2026, 1, 1))
        .not_valid_after(datetime.datetime(2036, 1, 1))
    )
    if hosts:
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def attribute(oid: ObjectIdentifier, text: str, kind: _ASN1Type = _ASN1Type.UTF8String) -> x509.NameAttribute:
    return x509.NameAttribute(oid, text, kind, _validate=False)


def named(*attributes: x509.NameAttribute) -> str:
    return subject_name(certificate_of(x509.Name(attributes)))


@pytest.mark.parametrize(
    ("attributes", "printed"),
    [
        ([(ORG, "Kohort"), (OU, "Tests"), (CN, "alice")], "CN=alice,OU=Tests,O=Kohort"),
        ([(DC, "org"), (DC, "example"), (NameOID.USER_ID, "u1")], "UID=u1,DC=example,DC=org"),
        ([(CN, 'a,b=c+d<e>f#g;h"i\\j/k')], 'CN=a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j/k'),
        ([(CN, "  two each \r")], "CN=\\ \\ two each\\ \\\r"),
        ([(CN, "a\0b\nc")], "CN=a\\00b\nc"),
        ([(CN, "é中😀")], "CN=é中😀"),
        ([(NameOID.SERIAL_NUMBER, "42")], "2.5.4.5=#0c023432"),
        ([(ObjectIdentifier("2.999.3"), "x"), (CN, "y")], "CN=y,2.999.3=#0c0178"),
        ([(NameOID.COUNTRY_NAME, "CH"), (NameOID.STATE_OR_PROVINCE_NAME, "ZH")], "ST=ZH,C=CH"),
        ([(NameOID.LOCALITY_NAME, "l"), (NameOID.STREET_ADDRESS, "s")], "STREET=s,L=l"),
    ],
)
def test_a_name_is_printed_as_java_prints_it(attributes, printed):
    assert named(*(attribute(oid, text) for oid, text in attributes)) == printed


def test_an_email_address_is_printed_as_its_oid_and_its_encoding():
    email = attribute(NameOID.EMAIL_ADDRESS, "a@b.ch", _ASN1Type.IA5String)
    assert named(email, attribute(CN, "a")) == "CN=a,1.2.840.113549.1.9.1=#16066140622e6368"


def test_a_string_of_a_kind_that_java_does_not_read_is_printed_as_its_encoding():
    assert named(attribute(ORG, ";", _ASN1Type.UniversalString)) == "O=#1c040000003b"
    assert named(attribute(ORG, ">", _ASN1Type.BMPString)) == "O=\\00\\>"


def test_several_values_in_one_part_are_joined_by_plus():
    both = x509.RelativeDistinguishedName([attribute(CN, "a"), attribute(OU, "b")])
    name = x509.Name([x509.RelativeDistinguishedName([attribute(ORG, "c")]), both])
    assert subject_name(certificate_of(name)) == "CN=a+OU=b,O=c"


def test_a_subject_without_anything_is_empty():
    assert subject_name(certificate_of(x509.Name([]))) == ""


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([CN, ORG, OU, DC]), st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)),
        min_size=1,
        max_size=4,
    )
)  # fmt: skip
def test_names_are_those_of_cryptography_but_for_what_java_escapes_too(pairs):
    name = x509.Name([attribute(oid, text) for oid, text in pairs])
    ours = subject_name(certificate_of(name))
    unescape = re.compile(r"\\(.)", re.DOTALL)
    assert unescape.sub(r"\1", ours) == unescape.sub(r"\1", name.rfc4514_string())


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 400), st.data())
def test_damaged_certificates_are_told_from_good_ones(noise, at, data):
    good = certificate_of(x509.Name([attribute(CN, "alice"), attribute(ORG, "x" * 200)]), "a.test")
    bad = good[: at % len(good)] + noise + good[at % len(good) + data.draw(st.integers(0, 40)) :]
    for read in (subject_name, alternative_names):
        try:
            read(bad)
        except BadCertificate:
            pass


def test_alternative_names():
    name = x509.Name([attribute(CN, "x")])
    assert alternative_names(certificate_of(name)) == frozenset()
    both = alternative_names(certificate_of(name, "a.test", "b.test"))
    assert both > alternative_names(certificate_of(name, "a.test")) == {b"\x82\x06a.test"}


# --- mapping rules


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        # from Kafka's own tests of SslPrincipalMapper
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
         "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("RULE:^CN=(.*?),OU=(.*?)$/$1@$4/, DEFAULT", "CN=duke,OU=sme", "duke@$4"),
        ("DEFAULT", "CN=x", "CN=x"),
        ("RULE:^CN=a$/b/,RULE:^CN=(.)$/is-$1/,DEFAULT", "CN=c", "is-c"),
        ("RULE:^CN=(.*?),.*$/$1/L , DEFAULT", "O=none", "O=none"),
        ("RULE:^.*$/all/", "anything", "all"),
        ("RULE:.*/all/", "anything", "allall"),  # Java's replaceAll finds the empty end too
        ("RULE:^CN=(\\w+)\\/(\\w+)$/$2\\/$1/", "CN=a/b", "b/a"),
        ("RULE:^CN=(?<who>[a-z]+)$/${who}!/", "CN=bob", "bob!"),
        ("RULE:^CN=(a)(b)$/$12/", "CN=ab", "a2"),  # there is no group 12
        ("RULE:^CN=(a)$/$0-\\$1/", "CN=a", "CN=a-$1"),
        ("RULE:^CN=(a)?b$/<$1>/", "CN=b", "<>"),
        ("  ,, DEFAULT", "CN=x", "CN=x"),
    ],
)  # fmt: skip
def test_rules_map_names_as_in_kafka(rules, name, mapped):
    assert mapped_name(parse_mapping_rules(rules), name) == mapped


@pytest.mark.parametrize("rules", ["", "RULE:^CN=a$/b/", "RULE:^CN=(.)/$1/"])
def test_a_name_that_no_rule_is_for_has_no_principal(rules):
    assert mapped_name(parse_mapping_rules(rules), "CN=zoe") is None


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULTS",
        "RULE:^CN=(.*?)$/$1",
        "RULE:^CN=(.*?)$/$1/X",
        "RULE:^CN=(.*?)$/$1/LU",
        "RULE:^CN=((.*?)$/$1/",
        "RULE:^CN=[a-z&&[^b]]$/x/",
        "RULE:^CN=\\p{Alpha}$/x/",
        "RULE:^CN=a$/$1/",
        "RULE:^CN=(a)$/${nobody}/",
        "RULE:^CN=(a)$/$x/",
        "CN=alice",
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(rules):
    with pytest.raises(SettingError, match=r"^ssl\.principal\.mapping\.rules: "):
        parse_mapping_rules(rules)


_TEXT = st.text("abcXYZ .-_@é", max_size=10)


@given(st.lists(st.tuples(_TEXT, _TEXT, st.sampled_from(["", "L", "U"])), max_size=5), _TEXT)
def test_the_first_rule_that_is_for_a_name_maps_it(rows, name):
    """Rules whose expressions are literal texts: a naive search is the oracle."""
    text = ",".join(f"RULE:^{re.escape(key)}$/{value}/{case}" for key, value, case in rows)
    expected = next(
        ({"L": str.lower, "U": str.upper, "": str}[case](value) for key, value, case in rows if key == name), None
    )  # fmt: skip
    assert mapped_name(parse_mapping_rules(text), name) == expected
    assert mapped_name(parse_mapping_rules(f"{text},DEFAULT"), name) == (
        name if expected is None else expected
    )

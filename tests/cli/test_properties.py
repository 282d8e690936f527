"""Files of settings are read as Java reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.cli.frame.properties import read_properties
from kohort.settings import SettingError

JAAS = r"""
# SASL, as the file of a Java client has it
! and another comment
security.protocol = SASL_SSL
sasl.mechanism:PLAIN
client.id   billing of today
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    username="alice" \
    password="a\\b=c#d\u00e9";
empty=
ssl.key.location=C\:\\keys\\key.pem
"""


def test_all_that_java_reads(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(JAAS, "utf-8")
    assert read_properties(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "client.id": "billing of today",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="a\\b=c#dé";',
        "empty": "",
        "ssl.key.location": r"C:\keys\key.pem",
    }


def test_what_is_no_setting_is_told_without_showing_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("a=1\nmysecret\n")
    with pytest.raises(SettingError, match=r"client\.properties line 2") as wrong:
        read_properties(path)
    assert "mysecret" not in str(wrong.value)
    path.write_bytes(b"a=\xff\n")
    with pytest.raises(SettingError, match="UTF-8"):
        read_properties(path)

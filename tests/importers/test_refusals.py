"""Files that are refused, each with one sentence; and the cost of importing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from redelivery import ConfigurationError, RedeliveryPolicyMap
from redelivery.importers import file_syntax, read
from redelivery.importers import file_syntax as xml_positions

if TYPE_CHECKING:
    from pathlib import Path

BOMB = '<!DOCTYPE a [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;&a;">]><a>&b;</a>'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (BOMB, "f:1:13: a DOCTYPE and its entities are not read"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "f:1:"),
        ("<broker>\n &name;</broker>", "f:2:2: the XML is not well-formed: undefined entity"),
        ("<broker>\n<a></broker>", "f:2:6: the XML is not well-formed: mismatched tag"),
        ("<broker", "f:1:1: the XML is not well-formed: unclosed token"),
        ('<?xml version="1.0" encoding="klingon"?><a/>', "f:1:1: the XML cannot be decoded"),
        ("<project/>", "f:1: <project> belongs neither to"),
        ("<a>" * 200, "f:1:301: too deep or too many elements"),
        ("a: yaml\n", "f: neither XML (activemq.xml, broker.xml), nor JSON"),
        ("%PDF", "f: neither XML"),
        (f"[default]\nmaximumRedeliveries = {'9' * 5000}", "f:2: the TOML has too long a number"),
        (f"[default]\nmaximumRedeliveries = 0x{'f' * 5000}", "f:2: maximumRedeliveries must be"),
        (f"wildcards = {{delimiter = 0x{'f' * 5000}}}", "f:1: an address' delimiter"),
        (f"[deadLetters]\ndeadLetter = 0x{'f' * 5000}", "f:2: redelivery.deadLetter must be"),
        (f"[default]\nx{'.x' * 2000} = 1", "f:2: a key has more than 1000 dots"),
        (f"[{'x' * 5000}]", "f:1: unknown key xxx"),
        ('{"queues": [\n{"name": "a\\ud800", "maximumDeliveryAttempts": 1}]}', 'f:2: "a\\ud800" has half a'),
        ('{"queues": [],\n"\\udc00": 1}', 'f:2: "\\udc00" has half a surrogate pair'),
        (" \n\t", "f: the file is empty"),
        ("\ufeff", "f: the file is empty"),
    ],
)
def test_not_read(imported: Any, text: str, error: str) -> None:
    """A file that is malformed, has entities, or is of an unknown kind is refused with file, line and column."""
    with pytest.raises(ConfigurationError) as caught:
        imported(text)
    said = str(caught.value)
    assert said.startswith(error)
    assert "\n" not in said
    assert len(said.encode()) < 2000


def test_size(imported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A huge file is read up to a limit, and a tree has a limited number of elements."""
    with pytest.raises(ConfigurationError, match="larger than 8 MiB"):
        read("/dev/zero")
    monkeypatch.setattr(xml_positions, "_MOST", 10)
    with pytest.raises(ConfigurationError, match=r"^f:1:\d+: too deep or too many elements"):
        imported("<a>" + "<b/>" * 20 + "</a>")
    monkeypatch.setattr(file_syntax, "LARGEST", 5)
    with pytest.raises(ConfigurationError, match="larger than"):
        imported("<abcdef/>")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    """A missing file, a folder, and a value that is not a path are named."""
    for path, why in ((tmp_path / "no", "No such file"), (tmp_path, "Is a directory"), ("a\0b", "null")):
        with pytest.raises(ConfigurationError, match=f"cannot be read: .*{why}"):
            RedeliveryPolicyMap.from_toml(path)
    wrong: Any
    for wrong in (3, b"x", None):
        with pytest.raises(ConfigurationError, match="must be given as a path"):
            RedeliveryPolicyMap.from_toml(wrong)


def test_encodings(tmp_path: Path) -> None:
    """XML may have any encoding that it declares, with or without a byte order mark; JSON and TOML are UTF-8."""
    xml = '<?xml version="1.0" encoding="utf-16"?><redeliveryPolicy queue="ä" maximumRedeliveries="3"/>'
    path = tmp_path / "f"
    for encoding in ("utf-16", "utf-8-sig"):
        path.write_bytes(xml.replace("utf-16", encoding.removesuffix("-sig")).encode(encoding))
        assert read(path).policies.policy_for("ä").maximum_redeliveries == 3
    path.write_bytes(b"[default]\n# \xff\nmaximumRedeliveries = 1")
    with pytest.raises(ConfigurationError, match=":2: the file is not UTF-8"):
        read(path)
    path.write_bytes("\ufeff[default]\nmaximumRedeliveries = 1".encode())
    assert read(path).policies.default.maximum_redeliveries == 1


def test_another_kind(tmp_path: Path) -> None:
    """A reader of one kind refuses other kinds, and names the reader for them."""
    kinds = {
        "from_activemq_xml": "<broker xmlns='http://activemq.apache.org/schema/core'/>",
        "from_artemis_xml": "<address-settings/>",
        "from_brokerj_json": '{"queues": []}',
        "from_toml": "[default]",
    }
    path = tmp_path / "f"
    for right, text in kinds.items():
        path.write_text(text)
        assert getattr(RedeliveryPolicyMap, right)(path) is not None
        for other in kinds.keys() - {right}:
            with pytest.raises(ConfigurationError, match=f"read it with {right}"):
                getattr(RedeliveryPolicyMap, other)(path)


def test_import_costs_nothing() -> None:
    """No parser and no importer is imported with the package or the policy map, before a file is read."""
    code = (
        "import sys, redelivery; redelivery.RedeliveryPolicyMap, redelivery.parse_uri;"
        "print([m for m in sys.modules if 'importers' in m or m in ('tomllib', 'xml', 'pyexpat', 'json')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

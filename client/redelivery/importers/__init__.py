"""Importers of brokers' configuration files, and of TOML.

The files: ActiveMQ Classic's XML, Artemis' XML, Broker-J's JSON. `read` returns everything that a file says
about redelivery and dead letters, with a note for each setting that cannot be carried over. The class methods
of `RedeliveryPolicyMap` return the policies only, and log the notes. Files are read when these functions are
called; parsers are imported only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError
from redelivery.importers.file_syntax import decoded, name_of, read_file, syntax_of
from redelivery.importers.imported import ClientSettings, Imported, Kind, Note, Notes
from redelivery.importers.uri_writer import UriOptions, to_uri_options

if TYPE_CHECKING:
    from os import PathLike

    from redelivery.core.policy.policy_map import RedeliveryPolicyMap

__all__ = ["Imported", "Kind", "Note", "UriOptions", "policies_of", "read", "to_uri_options"]


def read(path: str | PathLike[str], kind: Kind | None = None) -> Imported:
    """Read a policy file. Its kind is found by its content.

    Args:
        path: The file.
        kind: Kind that the file must have; None: any.

    Returns:
        Policies, dead-letter options, and notes.

    Raises:
        ConfigurationError: The file cannot be read, is larger than 8 MiB, is not well-formed, has a DOCTYPE,
            has another kind, or has an option out of range. The text is one sentence that starts with the
            file, and the line if it is known.
    """
    file = name_of(path)
    data = read_file(file)
    notes = Notes(file)
    clients = ClientSettings()
    match syntax_of(data, file):
        case "xml":
            is_kind, policies, dead_letters, clients = _read_xml(data, notes, kind)
        case "json":
            _expect("Broker-J JSON", kind, file)
            from redelivery.importers.brokerj_json import read_brokerj  # noqa: PLC0415 - each parser at first use

            is_kind = "Broker-J JSON"
            policies, dead_letters = read_brokerj(decoded(data, file), notes)
        case "toml":
            _expect("TOML", kind, file)
            from redelivery.importers.toml_policies import read_toml  # noqa: PLC0415

            is_kind = "TOML"
            policies, dead_letters = read_toml(decoded(data, file), file)
    return Imported(file, is_kind, policies, dead_letters, notes.sorted(), clients)


def policies_of(path: str | PathLike[str], kind: Kind) -> RedeliveryPolicyMap:
    """Return the policies of a file of that kind. Errors as `read`.

    Each note is logged as a warning, and the options of dead letters, which a policy map does not hold.
    """
    import logging  # noqa: PLC0415

    from redelivery.uri.syntax import option_text  # noqa: PLC0415

    imported = read(path, kind)
    log = logging.getLogger("redelivery")
    for note in imported.notes:
        log.warning("%s", note)
    if imported.dead_letters:
        options = option_text(imported.dead_letters)
        log.warning(
            "%s: dead letters: a policy map does not hold them; add %s to the URI, or give "
            "connect(dead_letters=redelivery.importers.read(…).dead_letter_map)",
            imported.file,
            options,
        )
    return imported.policies


def _read_xml(
    data: bytes, notes: Notes, kind: Kind | None
) -> tuple[Kind, RedeliveryPolicyMap, dict[str, str], ClientSettings]:
    from redelivery.importers.activemq_xml import is_classic, read_classic  # noqa: PLC0415
    from redelivery.importers.artemis_xml import is_artemis, read_artemis  # noqa: PLC0415
    from redelivery.importers.file_syntax import parse_xml  # noqa: PLC0415

    root = parse_xml(data, notes.file)
    if is_artemis(root):
        _expect("broker.xml", kind, notes.file)
        return ("broker.xml", *read_artemis(root, notes), ClientSettings())
    if is_classic(root):
        _expect("activemq.xml", kind, notes.file)
        return ("activemq.xml", *read_classic(root, notes))
    raise notes.error(
        root.line, f"<{root.tag}> belongs neither to ActiveMQ Classic's XML nor to Artemis' broker.xml"
    )


def _expect(found: Kind, wanted: Kind | None, file: str) -> None:
    if wanted is not None and found != wanted:
        readers = {
            "activemq.xml": "from_activemq_xml",
            "broker.xml": "from_artemis_xml",
            "Broker-J JSON": "from_brokerj_json",
            "TOML": "from_toml",
        }
        raise ConfigurationError(f"{file}: the file is {found}, not {wanted}; read it with {readers[found]}")

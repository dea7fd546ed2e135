"""Several mistakes in one use's options: one error lists all of them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from redelivery.errors import ConfigurationError
from redelivery_spark.options.option_mistakes import OptionMistakes
from redelivery_spark.options.source_options import read_batch_options, read_options, read_write_options
from redelivery_spark.source import RedeliveryDataSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

URL = 'url: missing; for instance .option("url", "stomp://broker:61613")'
WAL_DIR = 'walDir: missing; for instance .option("walDir", "/shared/orders-wal")'
DESTINATION = 'destination: missing; for instance .option("destination", "queue://orders")'
RELATIVE = "walDir=wal: a relative path, which can differ between the Spark driver and the executors; "
RELATIVE += "use an absolute path"
WHOLE = "must be a whole number, at least 1"


def errors_of(read: Callable[[Mapping[str, str]], object], **options: str) -> list[str]:
    """Return the mistakes that an error lists, after a check of its text."""
    with pytest.raises(ConfigurationError) as caught:
        read(options)
    error = caught.value
    texts = [f"{len(error.errors)} mistakes in the options:", *error.errors]
    assert str(error).splitlines() == texts
    return error.errors


def test_missing_options_are_reported_together() -> None:
    """A stream without options is refused with the three that it needs, each with an example."""
    assert errors_of(read_options) == [URL, DESTINATION, WAL_DIR]
    assert errors_of(read_batch_options, mode="drain") == [URL, DESTINATION, WAL_DIR]


def test_wrong_and_missing_options_are_reported_together() -> None:
    """Unknown, missing, wrong and contradictory options are in one error, in this order."""
    assert errors_of(
        read_options,
        destination="orders",
        ack="wal",
        walDir="wal",
        maxRowsPerTrigger="none",
        isolateAfter="3",
        mode="drain",
    ) == [
        "ack: no longer an option: a message is accepted when the write-ahead log has it, as with ack=wal; remove it",
        "mode: has no effect here; it is for spark.read, remove it",
        URL,
        RELATIVE,
        f"maxRowsPerTrigger=none: {WHOLE}",
        "isolateAfter: has no effect without isolate=split; add isolate=split, or remove it",
    ]


def test_a_batch_read_reports_all_mistakes() -> None:
    """Credentials, a topic, a wrong number and an option of the other mode are in one error."""
    found = errors_of(
        read_batch_options,
        url="stomp://b?jms.userName=u&jms.password=hush&redelivery.ledger=sqlite:///x",
        destination="topic://a",
        maxMessages="0",
        run="r",
    )
    assert [each.partition(":")[0] for each in found] == [
        "redelivery.ledger", "url", "run", "destination=topic", "maxMessages=0",
    ]  # fmt: skip
    assert "hush" not in "".join(found)


def test_a_writer_reports_all_mistakes() -> None:
    """Options of the URL that are for consumers only, and a wrong run, are in one error."""
    found = errors_of(read_write_options, url="memory://b?redelivery.rate=5", run="../x")
    assert [each.partition(":")[0] for each in found] == ["redelivery.rate", "run=../x"]


def test_one_mistake_is_reported_as_it_is() -> None:
    """An error over one option has no heading, and lists its own text."""
    with pytest.raises(ConfigurationError, match=r"^walDir: missing; ") as caught:
        read_options({"url": "memory://b", "destination": "a"})
    assert (caught.value.errors, caught.value.option) == ([WAL_DIR], "walDir")


def test_a_misspelt_option_is_not_missing_as_well() -> None:
    """An unknown option with a near miss is one mistake: the option that it is taken for counts as given."""
    with pytest.raises(ConfigurationError) as caught:
        read_options({"url": "memory://b", "destinaton": "a", "walDir": "/w"})
    assert caught.value.errors == ["destinaton: unknown option; did you mean 'destination'?"]


def test_a_wrong_value_contradicts_nothing() -> None:
    """An option with a wrong value is reported once, without contradictions that follow from its default."""
    wrong = {
        "minRowsPerTrigger": "few",
        "maxBytesAhead": "64q",
        "maxBytesPerTrigger": "1g",
        "isolateAfter": "x",
    }
    given = {"url": "memory://b", "destination": "a", "walDir": "/w", "isolate": "splitt"}
    found = errors_of(read_options, **given, **wrong)
    assert [each.partition("=")[0] for each in found] == [
        "maxBytesAhead", "minRowsPerTrigger", "isolate", "isolateAfter",
    ]  # fmt: skip


def test_an_unknown_option_is_reported_with_the_others_at_load() -> None:
    """The source refuses an unknown option when it is made, together with all mistakes that are known then."""
    for given, expected in (
        ({"walDir": "/w", "destination": "a", "quux": "1"}, ["quux: unknown option", URL]),
        ({"mode": "drain", "destination": "a", "quux": "1"}, ["quux: unknown option", URL, WAL_DIR]),
        ({"destination": "a", "quux": "1"}, ["quux: unknown option", URL]),
    ):
        assert errors_of(lambda given: RedeliveryDataSource(dict(given)), **given) == expected


def test_a_read_that_may_be_a_stream_says_so_once() -> None:
    """Several mistakes of a read that may be a stream without walDir are followed by one line about it."""
    with pytest.raises(ConfigurationError) as caught:
        RedeliveryDataSource({"destination": "topic://a"}).schema()
    assert str(caught.value).splitlines()[0] == "2 mistakes in the options:"
    assert str(caught.value).splitlines()[-1] == "if this is for readStream, walDir is missing, too"


def test_twenty_mistakes_are_listed() -> None:
    """The text lists 20 mistakes and the number of the others; `errors` has all, also after pickling."""
    mistakes = OptionMistakes()
    for number in range(23):
        mistakes.refuse(f"o{number}", f"o{number}: unknown option")
        mistakes.refuse(f"o{number}", f"o{number}: unknown option")
    with pytest.raises(ConfigurationError) as caught:
        mistakes.check()
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[0], lines[-1]) == (22, "23 mistakes in the options:", "and 3 more")
    assert len(pickle.loads(pickle.dumps(caught.value)).errors) == 23

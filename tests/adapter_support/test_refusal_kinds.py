"""Texts with which brokers refuse, as measured (docs/measured/refusals.md), and what the library takes them for."""

from __future__ import annotations

import pytest

from redelivery.adapter_support.refusals import passes, shortened

ABSENT = """Could not operate on queue 'orders' in vhost '/': {absent,
                                                    {amqqueue,
                                                     {resource,<<"/">>,queue,<<"orders">>},
                                                     true,false,none,[],<16221.1112.0>,[],[],[],undefined,undefined,[],
                                                     [],stopped,0,[],<<"/">>,#{user => <<"tester">>},
                                                     rabbit_classic_queue,#{}},
                                                    stopped}"""
DIED = """AMQP channel died: Reason: {shutdown,
          {connection_closing,
              {server_initiated_close,541,
                  "failed consuming from quorum queue 'orders' in vhost '/': nodedown"}}}"""
ON_NODE = "on node 'rabbit@n1' because the metadata store operation timed out"
FOR_NOW = [
    ("amqp:internal-error", ABSENT),
    ("amqp:internal-error", "failed consuming from quorum queue 'orders' in vhost '/': nodedown"),
    ("amqp:precondition-failed", "queue 'orders' is unavailable"),
    (None, "not_found: NOT_FOUND - queue 'orders' in vhost '/' process is stopped by supervisor"),
    (
        None,
        "not_found: NOT_FOUND - failed to perform operation on queue 'orders' in vhost '/' due to timeout",
    ),
    (None, DIED),
    (None, "Could not declare queue 'orders' in vhost '/' because the metadata store operation timed out"),
    (None, f"Could not declare quorum queue 'orders' in vhost '/' {ON_NODE}"),
    (None, f"Could not set leader PID for queue 'orders' in vhost '/' {ON_NODE}"),
    ("amqp:internal-error", "Could not create exchange 'x' in vhost '/' because the operation timed out"),
    (None, "INTERNAL_ERROR - failed to declare exchange 'x' in vhost '/' because the operation timed out"),
    (None, "INTERNAL_ERROR - Could not add binding due to timeout"),
    (None, "timed out consuming from quorum queue 'orders' in vhost '/': {orders,rabbit@n1}"),
]
FOR_GOOD = [
    ("amqp:not-found", "no queue 'orders' in vhost '/'"),
    ("amqp:resource-deleted", "amqp:resource-deleted"),
    (
        "amqp:unauthorized-access",
        "read access to queue 'orders' in vhost '/' refused for user 'stranger'",
    ),
    (
        None,
        "inequivalent arg 'x-queue-type' for queue 'orders' in vhost '/': received 'quorum' but current is 'classic'",
    ),
    (
        None,
        "access_refused: ACCESS_REFUSED - configure access to queue 'orders' in vhost '/' refused for user 'stranger'",
    ),
    (
        None,
        (
            "precondition_failed: PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'orders' in "
            "vhost '/': received 'quorum' but current is 'classic'"
        ),
    ),
    (None, "not_found: NOT_FOUND - no queue 'orders' in vhost '/'"),
    (None, "NOT_FOUND - no queue 'x because the metadata store operation timed out' in vhost '/'"),
    (None, "NOT_FOUND - no queue 'could not add binding due to timeout' in vhost '/'"),
]
UNKNOWN = [
    (None, "Server cancelled subscription: The server has canceled a subscription."),
    # As of a queue that is full, and as without a majority.
    ("amqp:resource-limit-exceeded", "queue 'orders' exceeded maximum length"),
    (None, "Could not find destination for target 'Target{address=absent.q,durable=none,dynamic=false}'"),
]


@pytest.mark.parametrize(("condition", "text"), FOR_NOW)
def test_what_a_node_that_stops_says_passes(condition: str | None, text: str) -> None:
    """A refusal of a node that stops, starts or has no majority passes."""
    assert passes(text, condition) is True


@pytest.mark.parametrize(("condition", "text"), FOR_GOOD)
def test_what_will_be_refused_again_stays(condition: str | None, text: str) -> None:
    """A missing right, other arguments and a queue that does not exist stay refused."""
    assert passes(text, condition) is False


@pytest.mark.parametrize(("condition", "text"), UNKNOWN)
def test_what_may_be_either_is_not_known(condition: str | None, text: str) -> None:
    """A text that says neither is not taken for one of them."""
    assert passes(text, condition) is None


def test_a_reason_is_one_line_without_terms() -> None:
    """The state of the broker's processes, over many lines, is left out."""
    assert shortened(ABSENT) == "Could not operate on queue 'orders' in vhost '/'…"


def test_a_reason_within_a_term_is_told() -> None:
    """A text that the broker gives inside of the state of a process is kept."""
    assert (
        shortened(DIED)
        == "AMQP channel died: Reason… failed consuming from quorum queue 'orders' in vhost '/': nodedown"
    )

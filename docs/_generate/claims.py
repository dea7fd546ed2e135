"""Page of the claims that the brokers' own documents make, with the result here and the tests that show it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from docs._generate.parts import table

__all__ = ["CLAIMS", "DOCUMENTS", "Claim", "claims_page"]

# Letters of the column "in": the documents.
DOCUMENTS = {
    "C": "ActiveMQ Classic: Message Redelivery and DLQ Handling",
    "R": "Red Hat AMQ 6: Message Redelivery",
    "J": "Qpid Broker-J: Handling Undeliverable Messages",
    "O": "Artemis: Undelivered Messages (2014)",
    "A": "Artemis: Message Redelivery and Undelivered Messages (2020)",
}
_CONFORMANCE = "client/redelivery/testing/conformance"
# A constant for each file that is named often.
_SESSIONS = f"{_CONFORMANCE}/sessions.py"
_POISONING = f"{_CONFORMANCE}/poisoning.py"
_ORDERS = f"{_CONFORMANCE}/orders.py"
_STRATEGIES = "integration/test_dead_letter_strategies.py"
_OPERATORS = "integration/test_operators_settings.py"
_OWN_PLACES = "integration/test_artemis_own_places.py"
_CLAIMS = "tests/driver/test_claims.py"
_DROPPING = "tests/driver/test_dead_letter_strategies.py"
_PLACES = "tests/driver/test_dead_letter_places.py"
_CLASSIC_XML = "tests/importers/test_activemq_xml.py"
_ARTEMIS_XML = "tests/importers/test_artemis_xml.py"
_ARTEMIS = "tests/core/test_artemis_policy.py"
_POLICY = "tests/core/test_policy.py"
_DEFAULTS = f"{_POLICY}::test_defaults_are_the_references"
_DELAYS = f"{_POLICY}::test_delays_are_the_references_integers"
_EXAMPLES = f"{_ARTEMIS_XML}::test_the_examples_of_the_documentation"


class Claim(NamedTuple):
    """One statement of the documents."""

    documents: str
    """Letters of `DOCUMENTS`."""
    text: str
    result: Literal["works", "differs"]
    how: str
    tests: tuple[str, ...]
    """Tests that show the result: `FILE::FUNCTION`."""


# In the order of the page: a heading, then its claims. The numbers are counted.
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "When a message is redelivered": (
        Claim(
            "CR", "`rollback()` of a transacted session", "works",
            '`session("transacted").rollback()`; refused where [the broker has no transactions](brokers.md)',
            (f"{_SESSIONS}::test_a_rollback_drops_sends_and_charges_receives",),
        ),
        Claim(
            "CR", "A transacted session is closed before its commit", "works", "leave `with session`",
            (f"{_SESSIONS}::test_a_session_that_closes_rolls_back",),
        ),
        Claim(
            "CR", "`recover()` of a session with client acknowledgement", "works",
            '`session("client").recover()`', (f"{_SESSIONS}::test_recover_charges_what_is_unsettled",),
        ),
        Claim(
            "C", "The client's connection times out, perhaps because its code takes too long", "differs",
            "heart-beats go out beside a slow handler. A process that freezes as a whole: over STOMP after "
            "`redelivery.heartbeat`, over AMQP [after the broker's own time](guarantees.md#a-process-that-freezes)",
            (
                "integration/test_heartbeats.py::test_a_long_handler_keeps_its_connection",
                "integration/test_frozen_client.py::test_over_stomp_our_heart_beats_decide",
                "integration/test_frozen_client.py::test_over_amqp_the_brokers_setting_decides",
                "tests/cli/test_doctor_findings.py::test_how_long_a_frozen_process_keeps_its_messages",
            ),
        ),
        Claim(
            "C", "The broker sends the policy that it prefers (BrokerInfo)", "differs",
            "only OpenWire has it: [import its file](porting-from-java.md); else the Java client's defaults",
            (f"{_CLASSIC_XML}::test_one_map_however_it_is_written", _DEFAULTS),
        ),
        Claim(
            "CR", "The client sets the policy of a connection", "works",
            "`connect(policies=…)`, or options of the URI", (f"{_CLAIMS}::test_a_connection_has_its_own_policies",),
        ),
    ),
    "Dead letters of ActiveMQ Classic": (
        Claim(
            "CR", "After the maximum the client sends a poison acknowledgement, and the broker moves the message",
            "differs",
            "a copy with the cause; the broker moves it with "
            "[`deadLetter=ack`](dead-letter-routing.md#how-does-a-message-get-there)",
            (
                f"{_POISONING}::test_each_route_takes_poison_away",
                "integration/test_dead_letters_ways.py::test_what_the_broker_has_poisoned_itself",
            ),
        ),
        Claim(
            "C", "All go to `ActiveMQ.DLQ` by default", "works", "there, with cause and count",
            (f"{_POISONING}::test_each_route_takes_poison_away", f"{_STRATEGIES}::test_a_dead_letter_that_expires"),
        ),
        Claim(
            "C", "`individualDeadLetterStrategy` of `activemq.xml`, also for a wildcard", "differs",
            "no client can ask for it. `deadLetter=ack` follows it; the import makes it "
            "[options of the client](dead-letter-routing.md#what-the-operator-has-set), with which copies go there",
            (
                f"{_OPERATORS}::test_classics_own_individual_strategy",
                f"{_CLASSIC_XML}::test_dead_letter_strategies",
            ),
        ),
        Claim(
            "C", "A dead-letter queue for a given queue or topic", "works",
            "[`DeadLetterMap`, `deadLetterMap` of the URI, `listen(dead_letter=…)`]"
            "(dead-letter-routing.md#a-place-for-each-destination)",
            (
                f"{_POISONING}::test_each_destination_has_its_own_place",
                "integration/test_ten_places.py::test_each_letter_is_in_its_place",
            ),
        ),
        Claim(
            "C", "Prefixes and suffixes of queues and topics; a queue for each durable subscriber", "works",
            "options of the same names",
            (
                f"{_STRATEGIES}::test_behind_a_wildcard_and_from_a_topic",
                f"{_STRATEGIES}::test_each_durable_subscription_has_its_own",
                "tests/core/test_strategies.py::test_individual_names",
            ),
        ),
        Claim(
            "C", "`processExpired=false` discards expired messages", "works",
            "those that expire in the client; of those on the queue the broker's own option decides",
            (
                f"{_STRATEGIES}::test_expired_here",
                f"{_CONFORMANCE}/expiry.py::test_an_expired_message_is_never_dispatched",
            ),
        ),
        Claim(
            "C", "Non-persistent messages are dead-lettered only with `processNonPersistent=true`", "differs",
            "[true is the default](porting-from-java.md#what-differs-from-the-java-client); false drops them",
            (f"{_POISONING}::test_poison_that_nobody_wants", f"{_POISONING}::test_each_route_takes_poison_away"),
        ),
        Claim(
            "C", "Dead letters never expire, or after `expiration`", "works", "`redelivery.deadLetterExpiration`",
            (f"{_STRATEGIES}::test_a_dead_letter_that_expires", f"{_POISONING}::test_a_copy_may_expire"),
        ),
        Claim(
            "C", "A dead letter that expires into a dead-letter queue with expiration can circulate", "works",
            "no consumer gets its own dead letters, also by way of others of its connection: it is refused, or stops",
            (
                f"{_CLAIMS}::test_a_dead_letter_that_expires_does_not_circulate",
                f"{_DROPPING}::test_a_consumer_of_its_own_dead_letters_is_refused",
                f"{_PLACES}::test_consumers_whose_dead_letters_go_in_a_circle_are_refused",
            ),
        ),
        Claim(
            "C", "The strategy's audit: `enableAudit`, `maxAuditDepth`, `maxProducersToAudit`", "differs",
            "the client has none: each is a note at import; [the broker's sees no copy](measured/activemq-fan-out.md)",
            (f"{_CLASSIC_XML}::test_the_audit_is_not_carried_over",),
        ),
        Claim(
            "C", "The discarding plug-in drops everything", "works", "`deadLetterStrategy=discarding`",
            (f"{_CLASSIC_XML}::test_discarding", "tests/core/test_strategies.py::test_discarding"),
        ),
        Claim(
            "C", "… or destinations by names between blanks, which are regular expressions such as `[0-9]{3}`",
            "differs",
            "[`redelivery.discard`](discarding.md) does. The broker's plug-in drops only with `deadLetter=ack`",
            (f"{_STRATEGIES}::test_discarding_by_pattern", f"{_OPERATORS}::test_classics_own_discarding_plugin"),
        ),
        Claim(
            "C", "`reportInterval` counts the dropped ones in the log; 0: never", "works", "the same option",
            (f"{_DROPPING}::test_discarding_by_pattern", f"{_CLAIMS}::test_no_report_of_what_is_dropped"),
        ),
        Claim(
            "C", "The examples of the plug-in: `dropAll`, and `dropOnly` twice", "differs",
            '`dropAll` is imported. `dropOnly` without `dropAll="false"` drops everything on Classic: '
            "[a note, and exit code 3](policy-files.md#what-is-not-carried-over)",
            (
                f"{_CLASSIC_XML}::test_discarding", f"{_CLASSIC_XML}::test_what_the_plugin_drops",
                f"{_CLASSIC_XML}::test_a_plugin_that_drops_all_against_its_words",
            ),
        ),
    ),
    "Redelivery by the client, and by Classic's plug-in": (
        Claim(
            "C", "The client redelivers, and keeps the order", "differs",
            "with `redelivery.ordering=blocking`; "
            "[by default others overtake](porting-from-java.md#what-differs-from-the-java-client)",
            (f"{_ORDERS}::test_blocking_keeps_strict_order", f"{_ORDERS}::test_non_blocking_lets_others_overtake"),
        ),
        Claim(
            "C", "The message stays in flight at one consumer until that ends", "works",
            "then the next one has it; with a [ledger](ledger.md) a message that kills its process is dead-lettered",
            (
                f"{_CONFORMANCE}/draining.py::test_closing_gives_back_what_is_held",
                "integration/test_ledger.py::test_a_message_that_kills_its_process_ends_in_the_dead_letter_queue",
            ),
        ),
        Claim(
            "CR", "`redeliveryPlugin`: the broker redelivers if the client has 0 redeliveries", "differs",
            "with `deadLetter=ack`, and each return counts as poisoned; "
            "[a copy passes it by](dead-letter-routing.md#what-the-operator-has-set)",
            (f"{_OPERATORS}::test_classics_own_redelivery_plugin",),
        ),
        Claim(
            "CR", "Its policies by destination, and `defaultEntry`", "works", "imported as policies of the client",
            (f"{_CLASSIC_XML}::test_one_map_however_it_is_written",),
        ),
        Claim(
            "C", "`fallbackToDeadLetter` without a policy that matches", "works",
            "false drops it, [after the default redeliveries](discarding.md#by-another-property-of-the-message)",
            (f"{_DROPPING}::test_what_no_entry_serves_is_dropped",),
        ),
        Claim(
            "C", "`sendToDlqIfMaxRetriesExceeded=false` drops", "works", "the same option",
            (f"{_STRATEGIES}::test_dropped_when_used_up",),
        ),
        Claim(
            "C", "The broker needs `schedulerSupport`", "works",
            "with `redelivery.scheduler=broker` only: then a consumer is refused without it",
            ("integration/test_scheduled.py::test_classic_without_its_scheduler_is_refused",),
        ),
    ),
    "Options of a policy": (
        Claim("R", "`collisionAvoidanceFactor`, 0.15", "works", "the same", (
            _DEFAULTS, f"{_POLICY}::test_jitter_stays_in_the_references_bounds_and_has_its_mean",
        )),
        Claim("R", "`maximumRedeliveries`, 6; -1: no limit", "works", "the same", (
            _DEFAULTS, f"{_CONFORMANCE}/counts.py::test_each_delivery_is_counted",
            f"{_CONFORMANCE}/counts.py::test_without_a_limit_it_is_never_poison",
        )),
        Claim("R", "`maximumRedeliveryDelay`, -1: no cap", "works", "the same", (
            _DEFAULTS, f"{_POLICY}::test_delays_are_never_negative_and_the_cap_holds", _DELAYS,
        )),
        Claim("R", "`initialRedeliveryDelay`, 1000 ms", "works", "the same", (_DEFAULTS, _DELAYS)),
        Claim("R", "`redeliveryDelay`, 1000 ms", "works", "the same", (_DEFAULTS, _DELAYS)),
        Claim("R", "`useCollisionAvoidance`, false", "works", "the same", (
            _DEFAULTS, f"{_POLICY}::test_jitter_stays_in_the_references_bounds_and_has_its_mean", _DELAYS,
        )),
        Claim("R", "`useExponentialBackOff`, false", "works", "the same", (_DEFAULTS, _DELAYS)),
        Claim("R", "`backOffMultiplier`, 5", "works", "the same", (_DEFAULTS, _DELAYS)),
        Claim(
            "R", "The URI sets it: `tcp://…?jms.redeliveryPolicy.maximumRedeliveries=4`", "works",
            "behind `stomp://` or `amqp://`; `connect` refuses `tcp://` with the URI that works",
            (
                "tests/uri/test_mistakes.py::test_the_uri_that_works",
                "tests/cli/test_policy_convert.py::test_a_uri_is_converted",
            ),
        ),
        Claim(
            "R", "`FRED.JOE` is redelivered 4 times, other queues by the default", "works", "`RedeliveryPolicyMap`",
            (f"{_CLAIMS}::test_one_destination_has_a_policy_of_its_own",),
        ),
        Claim(
            "R", "Policies by queue, topic and wildcard", "works", "with Classic's own precedence",
            ("tests/core/test_policy_map.py::test_winners_are_the_references",),
        ),
    ),
    "Qpid Broker-J": (
        Claim(
            "J", "After the maximum the broker routes the message by its alternate binding", "differs",
            "a handler's failures are counted here: [the policy is the limit](brokers.md), then a copy with the cause",
            (
                f"{_OPERATORS}::test_a_limit_of_the_broker_counts_no_failure_of_a_handler",
                "integration/test_broker_settings.py::test_brokerj_has_no_limit_unless_the_name_says_so",
            ),
        ),
        Claim(
            "J", "Without one it discards the message", "differs",
            "[a copy is in `DLQ`](dead-letter-routing.md), or where the client says. What killed processes leave is "
            "discarded, and a consumer of such a queue [begins with a warning](measured/brokerj-management.md)",
            (
                f"{_STRATEGIES}::test_discarding_by_pattern",
                "integration/test_brokerj_management.py::test_a_consumer_says_that_messages_may_be_dropped",
            ),
        ),
        Claim(
            "J", "The delivery count is visible over AMQP 1.0", "works", "`message.broker_count`",
            (f"{_OPERATORS}::test_broker_j_reports_what_it_has_counted",),
        ),
        Claim(
            "J", "Dead-letter queues are to be examined often, and emptied", "differs",
            "[`redelivery dlq`](dead-letters.md). A letter that the broker moved itself has "
            "[no origin](dead-letters-by-broker.md): a redrive of it needs `--to`",
            (
                f"{_OPERATORS}::test_a_letter_that_broker_j_has_moved_has_no_origin",
                "integration/test_dead_letters.py::test_a_handful",
            ),
        ),
        Claim(
            "J", "Limit and alternate binding are attributes of a queue", "works",
            "its JSON is imported, each queue with its own binding; 0 is no limit",
            (
                "tests/importers/test_brokerj_json.py::test_queues",
                "tests/importers/test_brokerj_json.py::test_queues_that_are_made_when_needed",
            ),
        ),
    ),
    "Artemis": (
        Claim(
            "OA", "A delay of 5 s, doubled up to 15 s: 5, 10, 15 s", "works", "`ArtemisRedeliveryPolicy`",
            (_EXAMPLES, f"{_ARTEMIS}::test_delays_are_the_brokers_integers"),
        ),
        Claim(
            "OA", "Defaults: delay 0, multiplier 1.0, the longest delay is ten times the first", "works", "the same",
            (f"{_ARTEMIS}::test_defaults_are_the_brokers", f"{_ARTEMIS}::test_delays_are_the_brokers_integers"),
        ),
        Claim(
            "A", "A collision avoidance factor from 0.0 to 1.0 varies each delay, the first too", "works", "the same",
            (
                _EXAMPLES, f"{_ARTEMIS}::test_jitter_stays_in_the_brokers_bounds",
                f"{_ARTEMIS}::test_from_options_refuses",
            ),
        ),
        Claim(
            "OA", "Other messages are delivered meanwhile; wildcards cover several addresses", "works",
            "the default order; `RedeliveryPolicyMap.from_artemis_xml`",
            (
                f"{_ORDERS}::test_non_blocking_lets_others_overtake",
                "tests/core/test_policy_map.py::test_artemis_matches", f"{_ARTEMIS_XML}::test_vectors",
            ),
        ),
        Claim(
            "OA", "`dead-letter-address` of an address", "works",
            "a copy [goes there](dead-letter-routing.md#what-the-operator-has-set), if no option names a place",
            (
                f"{_OPERATORS}::test_artemis_own_dead_letter_address",
                f"{_OWN_PLACES}::test_another_address",
                f"{_ARTEMIS_XML}::test_each_address_has_its_own_dead_letter_address",
            ),
        ),
        Claim(
            "OA", "`max-delivery-attempts`", "differs",
            "imported as the policy. The broker's own counts "
            "[lost connections, not failures of a handler](guarantees.md#nothing-runs-for-ever)",
            (
                f"{_OPERATORS}::test_a_limit_of_the_broker_counts_no_failure_of_a_handler", _EXAMPLES,
                "integration/test_cuts_prefetched.py::test_artemis_counts_lost_links",
            ),
        ),
        Claim(
            "OA", "10 deliveries by default; -1: no limit", "works", "of an imported file",
            (f"{_ARTEMIS}::test_defaults_are_the_brokers", f"{_ARTEMIS}::test_attempts_count_deliveries"),
        ),
        Claim(
            "OA", "Without a dead-letter address the message is removed", "differs",
            "[a copy is in `DLQ`](policy-files.md#what-is-not-carried-over), and a note at import says so",
            (f"{_ARTEMIS_XML}::test_notes", f"{_POISONING}::test_each_route_takes_poison_away"),
        ),
        Claim(
            "OA", "Dead letters have `_AMQ_ORIG_ADDRESS` and `_AMQ_ORIG_QUEUE`", "works",
            "copies have both, without `_AMQ_ORIG_MESSAGE_ID`; over AMQP the broker's own are in `message.annotations`",
            (
                f"{_STRATEGIES}::test_each_queue_has_its_own",
                f"{_OPERATORS}::test_artemis_own_record_is_in_the_annotations",
            ),
        ),
        Claim(
            "A", "`auto-create-dead-letter-resources` makes a queue for each address, with prefix and suffix",
            "works",
            "a copy [is in that queue](dead-letter-routing.md#what-the-operator-has-set), read as "
            "`native://DLA::QUEUE`. The import names it for one address; many are left out, with exit code 3",
            (
                f"{_OPERATORS}::test_artemis_own_dead_letter_address",
                f"{_OWN_PLACES}::test_a_queue_for_each_address",
                f"{_ARTEMIS_XML}::test_a_queue_for_each_address",
                "integration/test_imported_places.py::test_the_brokers_queue_of_one_address",
            ),
        ),
        Claim(
            "OA", "`persist-delivery-count-before-delivery` counts what a crash has interrupted", "differs",
            "a note at import: here a [ledger](ledger.md) counts it",
            (
                f"{_ARTEMIS_XML}::test_notes",
                "integration/test_ledger.py::test_a_message_that_kills_its_process_ends_in_the_dead_letter_queue",
            ),
        ),
        Claim(
            "O", "Addresses of Artemis 1: `jms.queue.exampleQueue`", "differs",
            "taken for both names, with a note; a dead-letter address keeps the name that it is written with",
            (f"{_ARTEMIS_XML}::test_a_document_of_artemis_1",),
        ),
        Claim(
            "A", "A cancelled delivery waits for the redelivery delay", "differs",
            "what a consumer gives back as it closes is delivered [at once, uncounted](guarantees.md#nothing-is-lost)",
            (f"{_CONFORMANCE}/draining.py::test_closing_gives_back_what_is_held",),
        ),
    ),
}  # fmt: skip

_HEAD = """# Does it keep what the brokers' documents say of redelivery?

Five documents describe redelivery and dead letters of these brokers. This page has each of their claims, in our words;
the result here; and the tests that show it. **{works} of {all} work as written, {differs} differ.**

{documents}

"differs" is a difference that the linked page explains. A test of `client/redelivery/testing/conformance` and
`integration` runs on real brokers.
"""


def claims_page() -> str:
    """Return the page: a table for each heading, its claims numbered throughout."""
    results = [claim.result for claims in CLAIMS.values() for claim in claims]
    documents = "\n".join(f"- **{letter}**: {name}" for letter, name in DOCUMENTS.items())
    head = _HEAD.format(
        works=results.count("works"), differs=results.count("differs"), all=len(results), documents=documents
    )
    sections, number = [head], 0
    for heading, claims in CLAIMS.items():
        rows: list[list[str]] = []
        for claim in claims:
            number += 1
            shown = "; ".join(f"`{test}`" for test in claim.tests)
            rows.append([str(number), ", ".join(claim.documents), claim.text, claim.result, claim.how, shown])
        sections.append(f"## {heading}\n\n{table(['', 'in', 'claim', 'here', 'how', 'shown by'], rows)}\n")
    return "\n".join(sections)

"""Reader of redelivery policies and policy maps in beans of ActiveMQ Classic."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from redelivery.core.destination import Destination
from redelivery.core.policy.classic_wildcards import check_wildcards
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import ConfigurationError
from redelivery.importers.dead_letter_uri import refusal
from redelivery.importers.imported import Value
from redelivery.importers.setting_values import BOOLEANS, settled

if TYPE_CHECKING:
    from redelivery.importers.imported import Notes
    from redelivery.importers.spring_beans import Beans, Property
    from redelivery.importers.xml_positions import Element

__all__ = ["Policies", "PolicyReader"]

_PLACES = ("destination", "queue", "topic", "tempQueue", "tempTopic")
_FLAGS = ("useExponentialBackOff", "useCollisionAvoidance", "preDispatchCheck")
_CHECK = "preDispatchCheck"


@dataclass(slots=True)
class Policies:
    """Policies of one map."""

    line: int
    default: RedeliveryPolicy | None = None
    entries: dict[str, RedeliveryPolicy] = field(default_factory=dict[str, RedeliveryPolicy])

    @property
    def any(self) -> bool:
        """True if there is a policy."""
        return self.default is not None or bool(self.entries)


class PolicyReader:
    """Reader of policy beans. It records which beans it has read."""

    def __init__(self, beans: Beans, notes: Notes) -> None:
        """Read from `beans`, and add notes on settings that are not carried over."""
        self._beans = beans
        self._notes = notes
        self.read: set[int] = set()
        """Ids (`id()`) of the beans that have been read."""
        self._lines: dict[str, int] = {}
        # By `id()` of the bean: several connection factories may share a map.
        self._maps: dict[int, Policies] = {}

    def policy(self, bean: Element) -> RedeliveryPolicy:
        """Return the policy of a bean. Raises ConfigurationError, with the line."""
        self.read.add(id(bean))
        options: dict[str, Value] = {}
        for name, item in self._beans.properties(bean).items():
            value = None if name in _PLACES else settled(name, item.value, self._notes)
            if value is not None:
                options[name] = self._boolean(name, value)
        self._check_supported(options)
        try:
            texts = {name: value.text for name, value in options.items()}
            # Options of the Java client only: the limit of time is an option of this library.
            return RedeliveryPolicy.from_prefixed_options(texts, "")
        except ConfigurationError as error:
            place = options.get(error.option or "")
            raise self._notes.error(place.line if place else bean.line, error) from None

    @staticmethod
    def _boolean(name: str, value: Value) -> Value:
        return Value(BOOLEANS.get(value.text.lower(), value.text), value.line) if name in _FLAGS else value

    def _check_supported(self, options: dict[str, Value]) -> None:
        check = options.get(_CHECK)
        if check is not None and check.text.lower() == "false":
            why = refusal({f"jms.redeliveryPolicy.{_CHECK}": "false"})
            if why is not None:
                self._notes.add(check.line, f"{_CHECK}=false", why)
                del options[_CHECK]

    def map(self, bean: Element) -> Policies:
        """Return the content of a `redeliveryPolicyMap`, as a copy."""
        read = self._maps.get(id(bean))
        if read is None:
            read = self._maps[id(bean)] = self._map(bean)
        return replace(read)

    def _map(self, bean: Element) -> Policies:
        self.read.add(id(bean))
        found = Policies(bean.line)
        for name, item in self._beans.properties(bean).items():
            if name in ("redeliveryPolicyEntries", "entries"):
                for entry in item.beans:
                    self.entry(entry, found)
            elif name == "defaultEntry" and item.beans:
                found.default = self.policy(item.beans[0])
            elif item.text != "":
                self._notes.add(
                    item.line, name, "not known in a redeliveryPolicyMap; left out", left_out=True
                )
        return found

    def entry(self, bean: Element, into: Policies) -> None:
        """Add the policy of a bean under its destination. Raises ConfigurationError if it has none."""
        policy = self.policy(bean)
        place = self.place(bean)
        if place is None:
            raise self._notes.error(
                bean.line, "a redelivery policy entry needs a queue, a topic or another destination"
            )
        if place == "":
            return
        if place in into.entries:
            self._notes.add(
                self._lines[place], place, f"given again on line {bean.line}, which counts; left out"
            )
            # The last entry of a pattern counts, and is last in order.
            del into.entries[place]
        into.entries[place] = policy
        self._lines[place] = bean.line

    def place(self, bean: Element) -> str | None:
        """Return the pattern of an entry; None: it has none; empty: its pattern can match nothing."""
        properties = self._beans.properties(bean)
        for name in _PLACES:
            item = properties.get(name)
            if item is None:
                continue
            written = self._written(name, item)
            if written is None:
                continue
            if not written:
                return ""
            try:
                found = Destination.parse(written)
                check_wildcards(found)
                # The map ignores ?options, as the Java client does.
                return str(Destination(found.kind, found.name))
            except ConfigurationError as error:
                self._notes.add(item.line, written, f"{error}; left out", left_out=True)
                return ""
        return None

    def _written(self, name: str, item: Property) -> str | None:
        if name in ("tempQueue", "tempTopic"):
            flag = settled(name, item.value, self._notes)
            on = flag is not None and BOOLEANS.get(flag.text.lower(), flag.text.lower()) == "true"
            return {"tempQueue": "temp-queue://>", "tempTopic": "temp-topic://>"}[name] if on else None
        if item.beans:
            return self._destination(item.beans[0])
        value = settled(name, item.value, self._notes)
        if value is None:
            return ""
        if name == "destination" or "://" in value.text:
            return value.text
        return f"{name}://{value.text}"

    def _destination(self, bean: Element) -> str | None:
        properties = self._beans.properties(bean)
        kind = self._beans.type_of(bean).lower().removeprefix("activemq")
        name = properties.get("physicalName") or properties.get("brokerURL")  # or its constructor's argument
        kinds = {"queue": "queue", "topic": "topic", "tempqueue": "temp-queue", "temptopic": "temp-topic"}
        if kind not in kinds or name is None or not name.text:
            self._notes.add(bean.line, bean.tag, "not understood as a destination; left out", left_out=True)
            return ""
        return f"{kinds[kind]}://{name.text}"

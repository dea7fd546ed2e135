"""Rules for the parts of a connection URI that an error may repeat: those that cannot be a misplaced credential.

A password is often pasted behind the wrong option's `=`, or a `&` in it cuts it in two, and its second half reads as an
option's name. Errors go to logs and tickets.
"""

from __future__ import annotations

import re

from redelivery.errors import near_miss
from redelivery.uri.java_options import (
    DESTINATION_OPTIONS,
    JAVA_NAMES,
    JAVA_PREFIXES,
    QPID_NAMES,
    is_qpid_only,
)
from redelivery.uri.option_table import (
    DEAD_LETTER_MAP_PREFIX,
    MAP_PREFIX,
    OPTIONS,
    OUR_MAP_PREFIX,
    OUR_POLICY,
    POLICY,
    STRATEGY_NAMES,
)

__all__ = ["Masked", "java_name_repeats", "may_stand_for", "name_repeats", "shown_value", "value_to_show"]

_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9._,]{0,24}(?:[eE][+-]?[0-9]{1,5})? ?(?:ms|s|sec|m|min|h|d)?|)")
_NUMBERS = re.compile(r"[0-9.,_ -]{1,500}|")
_NOT_A_NUMBER = ("nan", "inf", "infinity")
_WORD = re.compile(r"[A-Za-z]{1,20}(?:[_-][A-Za-z]{1,20}){0,3}")
# Words that people write for true and false, or for no value.
_WORDS = ("true", "false", "yes", "no", "on", "off", "none", "null", "never", "auto", "default")
_NAME = re.compile(r"[A-Za-z]{1,40}(?:[._-][A-Za-z]{1,40}){0,8}")
_QUIET_NAME = re.compile(r"(?:jms|redelivery|failover)\.[A-Za-z.]{1,60}")
# Options whose errors explain the text itself.
_EXPLAINED = frozenset({
    "redelivery.discard", "redelivery.queuePrefix", "redelivery.queueSuffix", "redelivery.topicPrefix",
    "redelivery.topicSuffix",
})  # fmt: skip
_ARGUMENTS = re.compile(r"x-[a-z:,-][a-z0-9:,-]{0,200}")
_LETTERS = re.compile(r"[A-Za-z]{1,40}(?:\.[A-Za-z]{1,40}){0,4}")
_SECRET_NAME = re.compile(r"pass|user|secret|pwd|token|cred", re.IGNORECASE)
# Names that people write for the options of the credentials; a password is not cut into one of them.
_CREDENTIALS = ("userName", "username", "jms.user")
_TELLING_NAME = re.compile(rf"{_SECRET_NAME.pattern}|key|auth", re.IGNORECASE)
_PLACE = re.compile(r"(?:[a-z]{2,10}:|\.{0,2}/)[A-Za-z0-9._/-]{0,200}")


class Masked(str):
    """Value that errors must not repeat: it can be a secret, or a part of one."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show three stars, as errors do."""
        return "***"

    def __format__(self, spec: str) -> str:
        """Show three stars in a formatted text, too."""
        return "***"


def value_to_show(name: str, value: str, *, quiet: bool) -> str:
    """Return the value of an option, `Masked` where it could be a credential. `quiet`: the URI can hold one anywhere.

    Errors repeat numbers, and words near one that the option takes. They repeat another text where the option takes
    such texts.
    """
    for prefix, plain in ((MAP_PREFIX, POLICY), (OUR_MAP_PREFIX, OUR_POLICY)):
        if name.startswith(prefix):
            name = plain + name.rpartition(".")[2]
    if name.startswith(DEAD_LETTER_MAP_PREFIX):
        name = STRATEGY_NAMES.get(name.rpartition(".")[2], name)
    option = OPTIONS.get(name)
    if _NUMBER.fullmatch(value) or value.lower().lstrip("+-") in _NOT_A_NUMBER:
        return value
    if option is not None and option.kind == "list of milliseconds" and _NUMBERS.fullmatch(value):
        return value
    taken = (*_WORDS, *option.choices) if option is not None else _WORDS
    if _WORD.fullmatch(value) and near_miss(value, taken):
        return value
    open_to_see = option is not None and (option.kind == "destination" or name in _EXPLAINED)
    open_to_see = open_to_see or (name == "redelivery.ledger" and _PLACE.fullmatch(value) is not None)
    open_to_see = open_to_see or (name.endswith("Arguments") and _ARGUMENTS.fullmatch(value) is not None)
    return value if open_to_see and not quiet else Masked(value)


def name_repeats(name: str, *, quiet: bool) -> bool:
    """True if an error may repeat a text in the place of an option's name."""
    return (_QUIET_NAME if quiet else _NAME).fullmatch(name) is not None


def java_name_repeats(name: str) -> bool:
    """True if an error may repeat the name of an option of the Java client: it is known, or begins like one."""
    if name.removeprefix("jms.") in JAVA_NAMES or name in _CREDENTIALS:
        return True
    if name in DESTINATION_OPTIONS or name in QPID_NAMES:
        return True
    # Behind `socket.` and the like any name is one.
    return (name.startswith(JAVA_PREFIXES) or is_qpid_only(name)) and _LETTERS.fullmatch(name) is not None


def may_stand_for(name: str, option: str) -> bool:
    """True if the value of an unknown option can be shown as that of a known one: no secret gets an open name."""
    words = {word.lower() for word in _TELLING_NAME.findall(name)}
    return OPTIONS[option].kind == "secret" or words <= {w.lower() for w in _TELLING_NAME.findall(option)}


def shown_value(name: str, value: str, *, quiet: bool) -> str:
    """Return the value of an option of the Java client, or `***` where it could be a secret."""
    masked = isinstance(value_to_show(name, value, quiet=quiet), Masked)
    return "***" if masked or _SECRET_NAME.search(name) else value

"""Values of one label: a limited number, each valid in the exposition."""

from __future__ import annotations

__all__ = ["OTHER", "LabelValues"]

OTHER = "other"
# Characters. Names of destinations and of classes are shorter.
LONGEST = 200


class LabelValues:
    """The first names, up to a limit; `other` for all later ones. Call it with a lock held."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return the value for a name; the same one each time."""
        found = self._known.get(name)
        if found is not None:
            return found
        if len(self._known) >= self.most:
            return OTHER
        # Lone surrogates cannot be encoded as UTF-8: one of them would fail the whole scrape.
        shown = name[:LONGEST].encode("utf-8", "replace").decode("utf-8")
        self._known[name] = shown
        return shown

    def known(self, name: str) -> bool:
        """True if a name has a value of its own."""
        return name in self._known

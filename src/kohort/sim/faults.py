"""The rates of the faults in a run: what may go wrong, and how often."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probabilities per message, per write or per member and second, all between 0 and 1."""

    lost: float = 0.01
    """A request or an answer is lost: the client notices by its timeout."""
    delayed: float = 0.03
    """A message is seconds late, and comes after messages that were sent later."""
    duplicated: float = 0.01
    disconnected: float = 0.01
    """The client learns at once that it will get no answer."""
    slow_disk: float = 0.05
    failed_write: float = 0.02
    crash: float = 0.003
    """The node crashes, per second: a write that was under way may or may not be there afterwards."""
    resign: float = 0.005
    """A partition moves away and comes back, per second."""
    churn: float = 0.08
    """A member leaves, dies, restarts, changes its subscription, or falls silent."""
    stuck: float = 0.05
    """A new member sends heartbeats, but does not sync or does not rejoin."""

    @classmethod
    def none(cls) -> FaultRates:
        return cls(**dict.fromkeys((f.name for f in fields(cls)), 0.0))

    @classmethod
    def named(cls, text: str) -> FaultRates:
        """Reads `all`, `none`, or names with or without a rate, such as `lost,crash=0.01`."""
        if text == "all":
            return cls()
        chosen = cls.none()
        for part in filter(None, text.split(",")):
            name, _, rate = part.partition("=")
            if name == "none":
                continue
            if name not in cls.__slots__:
                known = ", ".join(f.name for f in fields(cls))
                raise ValueError(f"there is no fault called {name!r}; there are {known}, all and none")
            value = float(rate) if rate else getattr(cls(), name)
            chosen = replace(chosen, **{name: value})
        return chosen

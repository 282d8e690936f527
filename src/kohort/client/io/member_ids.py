"""Makes the ids that members of consumer and share groups choose for themselves. The sans-IO cores get them given."""

from __future__ import annotations

import base64
import uuid


def new_member_id() -> str:
    """Returns a UUID as Kafka's clients write one: 22 characters."""
    while True:
        spelled = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not spelled.startswith("-"):  # a command line would take it for an option
            return spelled

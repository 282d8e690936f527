"""The broker: asyncio around the cores, connections, the table of APIs, one handler per API.

`kohort.broker.running()` is a broker inside this process.
"""

from kohort.broker.running import running

__all__ = ["running"]

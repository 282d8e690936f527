"""Says whether the portable way is taken where Linux has a faster one of its own.

Linux has epoll, eventfd, io_submit, fdatasync and a sendfile of its own kind. Elsewhere the standard library's common
ways are used; `KOHORT_PORTABLE=1` takes them on Linux as well, which is how the tests run them.
"""

from __future__ import annotations

import os
import sys
from typing import Final

PORTABLE: Final = sys.platform != "linux" or os.environ.get("KOHORT_PORTABLE") == "1"

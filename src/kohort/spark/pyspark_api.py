"""Says what the installed PySpark offers to a data source, and stands in for what it lacks.

The source and the sink are written for PySpark 4.2. What 4.0 and 4.1 lack is found out here, by what there is to
import and not by the number of a version:

admission control   from 4.2: `latestOffset(start, limit)`, read limits, AvailableNow, the true ends in the progress
Arrow for streams   from 4.1: DataSourceStreamArrowWriter
Unix sockets        from 4.1: spark.python.unix.domain.socket.enabled
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql import datasource

HAS_ADMISSION_CONTROL = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark tells a stream's reader where the query stands and how much to read."""
HAS_UNIX_SOCKETS = hasattr(datasource, "DataSourceStreamArrowWriter")
"""Whether Spark and its Python processes can speak over Unix sockets, which came with that class."""

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as DataSourceStreamArrowWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter):
        """Gets Arrow batches in a stream of PySpark 4.0 too.

        The worker of 4.0 gives them to every DataSourceArrowWriter, without asking whether it is one for batches; the
        driver's side only calls `commit` and `abort`, with the number of the micro-batch.
        """


def session_settings() -> dict[str, str]:
    """The settings that a session with this PySpark should have for `format("kohort")`.

    Over Unix sockets each task begins 40 ms sooner than over TCP.

    Before 4.2 a Python source cannot support AvailableNow itself. Spark then runs one micro-batch and never says
    whether that is durable, so that the group's offsets stay behind until the next run. With Spark's wrapper it asks
    once more after the batch, and then the group's offsets are committed.
    """
    settings = {"spark.python.unix.domain.socket.enabled": "true"} if HAS_UNIX_SOCKETS else {}
    if not HAS_ADMISSION_CONTROL:
        settings["spark.sql.streaming.triggerAvailableNowWrapper.enabled"] = "true"
    return settings

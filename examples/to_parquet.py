"""Writes a topic to Parquet files, a batch of Arrow for each poll; needs kohort[arrow].

    python examples/to_parquet.py --bootstrap 127.0.0.1:9092 --directory orders

A file is named after the partition and the offset of its first row. Positions are committed when it is complete: if the
program is killed before that, the rows are read and written again, at least once.
"""

import argparse
from pathlib import Path

import pyarrow.parquet

from kohort import Consumer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--records", type=int, help="stop after so many records")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    rows = 0
    with Consumer(
        bootstrap_servers=options.bootstrap,
        group_id="parquet",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe(["orders"])
        while options.records is None or rows < options.records:
            batch = consumer.poll_arrow(1.0, max_records=100_000)
            if batch is None:
                continue
            first = f"{batch['partition'][0].as_py()}-{batch['offset'][0].as_py():020}"
            unfinished = options.directory / f".{first}"
            pyarrow.parquet.write_table(pyarrow.Table.from_batches([batch]), unfinished)
            unfinished.rename(options.directory / f"{first}.parquet")
            consumer.commit()
            rows += batch.num_rows
            print(f"{rows} rows in {options.directory}", flush=True)


if __name__ == "__main__":
    main()

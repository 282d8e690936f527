-- Orders of more than 100, by SQL alone.
-- kohort pipeline run examples/pipelines/large_orders.sql --set out=./large

-- topics: orders
-- group: large-orders
-- option startingOffsets: earliest
-- parameter out: ./large
-- parameter least: 100
-- sink: parquet ${out}

SELECT data.id, data.customer, data.amount, topic, partition, offset
FROM (
  SELECT from_json(CAST(value AS STRING), 'id long, customer string, amount double') AS data, topic, partition, offset
  FROM stream
)
WHERE data.amount > ${least}

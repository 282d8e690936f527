"""The web console: pages and a JSON API about the groups, topics and nodes of any Kafka cluster."""

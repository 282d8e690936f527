"""`kohort groups`: what people ask and do about groups, on any Kafka cluster."""

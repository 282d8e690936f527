"""`kohort demo`: a broker, a group and a pipeline on Spark at work, for a minute."""

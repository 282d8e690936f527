"""`kohort pipeline`: loads a pipeline, runs it on Spark, and keeps and shows its status."""

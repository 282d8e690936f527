"""Serializers and deserializers for Producer and Consumer, with or without a schema registry."""

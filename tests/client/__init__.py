"""Tests of the client room."""

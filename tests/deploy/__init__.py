"""Tests of what is in deploy/, and of the packages that `make dist` makes."""

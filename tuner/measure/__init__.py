"""Measuring: one forked process per route, timed beside the default route, checked against the original model."""

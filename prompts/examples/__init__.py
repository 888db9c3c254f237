"""Worked examples of plans, as data."""

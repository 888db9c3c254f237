"""Models of the Hub, run with transformers: what it can do is the table in tasks.py."""

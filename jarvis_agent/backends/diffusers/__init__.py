"""Models that make images, videos, sounds and shapes, run with diffusers: the table is in tasks.py."""

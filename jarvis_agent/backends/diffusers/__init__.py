"""Models that generate images, videos, sounds and shapes, run with diffusers; pipelines.py is the table."""

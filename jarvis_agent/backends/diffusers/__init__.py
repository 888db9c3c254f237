"""Models that generate images, videos, sounds and shapes, run with diffusers; backend.py has the table."""

"""What the surfaces share: progress, HTTP, files and what clients may see."""

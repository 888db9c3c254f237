"""Algorithms, no models: control maps with OpenCV, tools for images and videos."""

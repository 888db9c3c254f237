"""Images, audio, video and tables: detection, limits, decoding, downloads, and the files of a run."""

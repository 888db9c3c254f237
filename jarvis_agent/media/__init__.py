"""Reading and checking images, audio, video and tables; downloads; the files of a run."""

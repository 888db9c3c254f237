"""What the command line shows: progress, tables, the doctor, and what can be done here."""

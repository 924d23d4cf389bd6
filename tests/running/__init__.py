"""Starts the program under test and listens in on its connections; for every Python suite here."""

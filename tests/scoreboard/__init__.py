"""Scoreboard: derivatives that are wrong without an error, here and in other libraries."""

"""Searches for words."""

from ...registry import refuses

refuses(
    "the words that it finds are integers, and their scores are values of a subgraph in a loop "
    "whose number of turns depends on the words",
    *(f"com.microsoft::{name}" for name in ("BeamSearch", "Sampling", "WhisperBeamSearch")),
)

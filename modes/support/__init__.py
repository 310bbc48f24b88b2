"""Support: limits, locks, lazy values, optional libraries, files written whole."""

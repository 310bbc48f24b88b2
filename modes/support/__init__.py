"""Support: limits, locks, what is made once, optional libraries, files written whole."""

"""The tape in the graphs reading: derivatives recorded as graphs of their own."""

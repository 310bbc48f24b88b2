"""Taylor: derivatives of any order along curves and lines, by series of the recorded model."""

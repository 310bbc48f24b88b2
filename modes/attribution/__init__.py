"""Attribution: what a model looks at, in its inputs and in the data that trained it."""

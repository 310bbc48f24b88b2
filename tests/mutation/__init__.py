"""Mutation: is a changed program noticed?

    python -m tests.mutation --map FOLDER                     # once: which test runs which line
    python -m tests.mutation --map FOLDER --sample 400        # judge a sample
    python -m tests.mutation --map FOLDER --sample 400 --page # write RESULTS.md and killers.json
    python -m tests.mutation --short                          # twenty mutants and their killers

A mutant is a file of `jacobians/` or `ops/` with one change that cosmic-ray makes (`mutants`). It
is put on trial in a forked process that imports the changed text instead of the file (`trial`):
nothing is ever written into the tree. The tests that run the changed lines judge it (`contexts`,
`choice`).
Needs the extra `mutation`; `--short` needs nothing.
"""

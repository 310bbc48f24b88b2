"""Mutation testing: do the tests notice a changed program?

    python -m tests.mutation --map FOLDER                     # once: which test runs which line
    python -m tests.mutation --map FOLDER --sample 400        # judge a sample
    python -m tests.mutation --map FOLDER --sample 400 --page # write the page and killers.json
    python -m tests.mutation --scope modes ...                # the same for modes/
    python -m tests.mutation --short                          # twenty mutants and their killers

A mutant is a file of `jacobians/`, `ops/` or `modes/` with one change made by cosmic-ray
(`mutants`). It is tested in a forked process that imports the changed source instead of the file
(`trial`): nothing is ever written into the tree. The tests that run the changed lines decide
(`contexts`, `choice`).
Needs the extra `mutation`; `--short` needs nothing.
"""

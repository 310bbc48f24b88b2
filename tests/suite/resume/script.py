"""`script.py WORK FILE WRITING`: a work, killed in the middle of a writing of its file, if it is
given by its number; else it prints the digest of its numbers.
"""

import os
import signal
import sys
from hashlib import sha256

import numpy as np

import onnxjac as oj
from onnxjac.modes import state_file
from resume.works import WORKS

name, path, writing = sys.argv[1], sys.argv[2], int(sys.argv[3])
writings, write_array = [0], state_file.npy.write_array


def torn(member, array, **options):
    """Half of the second array of one of the writings, and the end."""
    writings[0] += member._zinfo.filename == "0.0.npy"
    if writings[0] == writing and member._zinfo.filename == "0.1.npy":
        member.write(bytes(array.nbytes // 2))
        member._fileobj.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    write_array(member, array, **options)


if writing:
    state_file.npy.write_array = torn
found = WORKS[name](oj.ResumeFile(path, every=1))
print(sha256(b"".join(np.asarray(x).tobytes() for x in found)).hexdigest())

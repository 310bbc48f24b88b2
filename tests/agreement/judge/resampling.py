"""Samples between pixels: resizing, grids, regions of interest."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import torch
from torch import Tensor

from .graphs import NoKernel, Node, integers, kernel

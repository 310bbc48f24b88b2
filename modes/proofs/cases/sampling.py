"""Operators that read between entries: every mode, padding and way to place the samples."""

from itertools import product

import numpy as np

from .table import at, case, ints, numbers

FAR = numbers(0.3125, -0.6875, 1.4375, -3.3125).reshape(1, 1, 2, 2)
"""Points of a grid inside, a little outside and far outside of an image."""

WITHIN = numbers(0.3125, -0.6875).reshape(1, 1, 1, 2)

case("AffineGrid", (1, 2, 3), ints(1, 1, 2, 2))
case("AffineGrid", (1, 2, 3), ints(1, 1, 2, 3), align_corners=1)

for padding, corners in product(("zeros", "border", "reflection"), (0, 1)):
    how = {"padding_mode": padding, "align_corners": corners}
    case("GridSample", (1, 1, 3, 2), FAR, **how)
    case("GridSample", (1, 1, 3, 2), FAR, mode="nearest", **how)
    case("GridSample", (1, 1, 3), numbers(1.4375, -0.3125).reshape(1, 2, 1), **how)
    case("GridSample", (1, 1, 2, 3), FAR, mode="cubic", wrt=(0,), **how)
    case("GridSample", at(1, 1, 2, 3), WITHIN + 0.75, mode="cubic", wrt=(1,), **how)
    case("GridSample", (1, 1, 2, 1, 2), numbers(0.25, -0.375, 1.4375).reshape(1, 1, 1, 1, 3), **how)
    case("GridSample", (1, 1, 1, 2, 2), numbers(0.25, -0.375, 1.4375).reshape(1, 1, 1, 1, 3),
         mode="nearest", **how)  # fmt: skip
case("GridSample", (2, 2, 1, 2), numbers(0.25, -0.375, 0.5, 0.125).reshape(2, 1, 1, 2))
case("GridSample", (1, 1, 3), numbers(0.3125).reshape(1, 1, 1), mode="cubic")
case("GridSample", (1, 1, 2, 1, 2), numbers(0.25, -0.375, 0.125).reshape(1, 1, 1, 1, 3),
     align_corners=1, mode="cubic", wrt=(0,))  # fmt: skip

case("DeformConv", (1, 1, 2, 3), (1, 1, 1, 2), (1, 4, 2, 2))
case("DeformConv", (1, 1, 1, 2), (1, 1, 1, 1), (1, 2, 1, 2), (1,), (1, 1, 1, 2))
case("DeformConv", (1, 2, 1, 2), (2, 1, 1, 1), (1, 4, 2, 3), None, (1, 2, 2, 3), group=2,
     offset_group=2, strides=[1, 2], pads=[0, 1, 1, 2])  # fmt: skip
case("DeformConv", (1, 1, 2, 3), (1, 1, 1, 2), (1, 4, 2, 1), dilations=[1, 2])


PLACES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners",
)  # fmt: skip
SCALED = {"axes": [2], "wrt": (0, 2)}
for mode, place in product(("linear", "cubic"), PLACES):
    how = {"mode": mode, "coordinate_transformation_mode": place, **SCALED}
    case("Resize", (1, 1, 2), None, numbers(1.75), **how)
    case("Resize", (1, 1, 2), None, numbers(1.75), exclude_outside=1, **how)
    case("Resize", (1, 1, 3), None, numbers(0.6875), antialias=1, exclude_outside=1, **how)
    case("Resize", (1, 1, 3), None, numbers(0.4375), antialias=1, **how)
for mode in ("linear", "cubic"):
    case("Resize", (1, 1, 4), None, None, ints(1, 1, 8), mode=mode)
    case("Resize", (1, 1, 3), None, None, ints(1, 1, 5), mode=mode, second=False)
    case("Resize", (1, 2, 2), None, numbers(1.75, 1.625), axes=[2, 1], mode=mode,
         second=mode == "linear")  # fmt: skip
case("Resize", (2, 4), None, None, ints(3, 8), mode="linear",
     keep_aspect_ratio_policy="not_smaller")  # fmt: skip
case("Resize", (2, 4), None, None, ints(4, 4), mode="linear", keep_aspect_ratio_policy="not_larger")
case("Resize", (1, 1, 3), None, numbers(0.625), mode="cubic", cubic_coeff_a=-0.5, **SCALED)
for place in PLACES:
    case("Resize", (1, 1, 3), None, numbers(1.75), coordinate_transformation_mode=place, **SCALED)
for near in ("round_prefer_ceil", "floor", "ceil"):
    case("Resize", (1, 1, 2), None, numbers(1.75), nearest_mode=near, **SCALED)
case("Resize", (1, 1, 3), None, None, ints(1, 1, 4))

CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}
REGION = numbers(0, 0, 0.125, 1, 1, 0.75)
for mode in ("linear", "cubic"):
    case("Resize", (1, 1, 3), REGION, None, ints(1, 1, 2), mode=mode, wrt=(0, 1), **CROP)
    case("Resize", (1, 1, 3), numbers(0, 0, -0.25, 1, 1, 1.125), None, ints(1, 1, 3), mode=mode,
         extrapolation_value=0.5, wrt=(0, 1), **CROP)  # fmt: skip
    case("Resize", (1, 1, 3), numbers(0.125, 0.75), None, ints(1), axes=[-1], mode=mode, wrt=(0, 1),
         **CROP)  # fmt: skip
    case("Resize", (1, 1, 3), REGION, numbers(1, 1, 1.75), mode=mode, wrt=(0, 1), **CROP)

BINS = {"output_height": 1, "output_width": 2}
ROI = numbers(0.25, 0.5625, 2.375, 2.53125).reshape(1, 4)
for place, mode in product(("half_pixel", "output_half_pixel"), ("avg", "max")):
    how = {"coordinate_transformation_mode": place, "mode": mode}
    case("RoiAlign", (1, 1, 3, 3), ROI, ints(0), sampling_ratio=1, **BINS, **how)
    case("RoiAlign", (1, 1, 2, 2), ROI, ints(0), sampling_ratio=2, spatial_scale=0.5, **how)
    case("RoiAlign", (1, 1, 3, 2), ROI, ints(0), output_width=2, **how)
    case("RoiAlign", (2, 1, 2, 2), ROI - 0.6875, ints(1), sampling_ratio=1, **how)
    case("RoiAlign", (1, 1, 2, 2), numbers(0.25, 0.3125, 0.75, 0.625).reshape(1, 4), ints(0),
         sampling_ratio=1, **how)  # fmt: skip
    case("RoiAlign", (1, 1, 2, 2), np.concatenate([ROI - 2.75, ROI - 0.625]), ints(0, 0),
         sampling_ratio=1, **how)  # fmt: skip

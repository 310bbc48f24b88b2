"""A device of PyTorch over main memory, as strict as a GPU: NumPy reads none of its tensors, and no
operator takes them together with tensors of the CPU. `pytest --device simulated` tests with it.

`COPIES` counts the transfers of the main thread, "up" and "down"; in the background, programs are
tried with zeros that go up. Random numbers are the CPU's.
"""

import threading
from collections import Counter

import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map_only

NAME = "simulated"
COPIES = Counter()
LIBRARY = []
"""What `register` registers, for as long as it is here."""

INDEXING = {"index", "index_put", "index_put_"}
"""Operators whose indices may be on the CPU, as on a GPU."""


class OnDevice(torch.Tensor):
    """A tensor of the device, whose numbers are in `raw`, a tensor of the CPU."""

    @staticmethod
    def __new__(cls, raw):
        told = {"strides": raw.stride(), "storage_offset": raw.storage_offset()}
        made = torch.Tensor._make_wrapper_subclass(
            cls, raw.size(), dtype=raw.dtype, device=f"{NAME}:0", **told
        )
        made.raw = raw
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return run(function, *args, **(kwargs or {}))

    def __reduce_ex__(self, protocol):
        return OnDevice, (self.raw,)

    def untyped_storage(self):
        return self.raw.untyped_storage()

    def data_ptr(self):
        return self.raw.data_ptr()

    def numpy(self, *, force=False):
        if not force:
            raise TypeError("NumPy reads no tensor of this device")
        return self.cpu().numpy()

    def tolist(self):
        return self.cpu().tolist()


def raw(x):
    """The tensor of the CPU behind x."""
    x = x.raw if isinstance(x, OnDevice) else x
    return x.resolve_conj().resolve_neg()


def count(before, after):
    """Count a transfer, given whether the tensor is on the device before and after."""
    if threading.current_thread() is threading.main_thread():
        COPIES.update({"up": after and not before, "down": before and not after})


def moved(x, device, **rest):
    """A copy of x on a device, counted where it is another one."""
    there = device is None or torch.device(device).type == NAME
    before = isinstance(x, OnDevice)
    there = before if device is None else there
    count(before, there)
    made = raw(x).to(**rest, copy=True) if rest else raw(x).clone()
    return OnDevice(made) if there else made


def run(function, *args, **kwargs):
    """One operator of PyTorch, run on the CPU."""
    name = function._schema.name.split("::")[1]
    given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    if name == "_to_copy":
        dtype = kwargs.get("dtype")
        return moved(args[0], kwargs.get("device"), **({} if dtype is None else {"dtype": dtype}))
    if name in ("copy_", "_copy_from"):
        target, source = args[:2] if name == "copy_" else (args[1], args[0])
        there, before = isinstance(target, OnDevice), isinstance(source, OnDevice)
        count(before, there)
        raw(target).copy_(raw(source))
        return target
    if name not in INDEXING and any(x.dim() and not isinstance(x, OnDevice) for x in given):
        shapes = [tuple(x.shape) for x in given]
        raise RuntimeError(f"{name} of tensors of shapes {shapes}, not all on one device")
    if kwargs.get("device") is not None:
        kwargs["device"] = "cpu"
    args, kwargs = tree_map_only(OnDevice, raw, args), tree_map_only(OnDevice, raw, kwargs)
    made = function(*args, **kwargs)
    if name == "_local_scalar_dense":
        return made
    in_place = name.endswith("_") and not name.endswith("__")
    return given[0] if in_place else tree_map_only(torch.Tensor, OnDevice, made)


def made_on_cpu(factory):
    """A function that makes tensors, for which PyTorch asks the device for more than operators."""

    def make(*args, device=None, **kwargs):
        if device is None or torch.device(device).type != NAME:
            return factory(*args, **kwargs, **({} if device is None else {"device": device}))
        args = (raw(x) if torch.is_tensor(x) else x for x in args)
        return OnDevice(factory(*args, **kwargs).clone())

    return make


class Generator(torch.Generator):
    """Random numbers of the CPU for the device."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, "cpu" if torch.device(device).type == NAME else device)


def register():
    """Let PyTorch know the device."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    LIBRARY.append(torch.library.Library("_", "IMPL"))
    LIBRARY[0].fallback(run, "PrivateUse1")
    for name in ("tensor", "as_tensor", "eye", "arange", "linspace", "randn", "randint"):
        setattr(torch, name, made_on_cpu(getattr(torch, name)))
    torch.Generator = Generator

"""A replacement for sgl_kernel, which has no build for CPUs.

Its names exist, and a call of one fails with the name.  With the flags of
sglang.py SGLang calls none.
"""

import importlib.machinery
import sys
import types

__version__ = "0.4.10"
__path__ = []


class Name:
    def __init__(self, name):
        self.name = name

    def __call__(self, *args, **kwargs):
        raise NotImplementedError("sgl_kernel." + self.name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(self.name + "." + name)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Name(name)


class Finder:
    """Finds any module below this one, with any name in it."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith(__name__ + "."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = __getattr__
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())

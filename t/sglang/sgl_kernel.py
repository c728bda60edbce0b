"""A stand-in for sgl_kernel, which has no build for CPUs.

Its names exist.  A call of one says which, and fails; SGLang calls none with the
flags of sglang.py.
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
    """Finds each module in it, with each name in that."""

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

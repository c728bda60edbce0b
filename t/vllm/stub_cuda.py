"""Lets a torch that was built for CUDA be imported without CUDA.

    stub_cuda.py SITE-PACKAGES

torch's libraries need CUDA's.  For each of these this script makes a library beside
them, with the functions that torch's libraries use.  Each function returns 100,
which is cudaErrorNoDevice.  Needs gcc and readelf.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

CUDA = re.compile(r"lib(cu|nv|nccl)")

# functions without a version, so that their library is unknown

LOOSE = re.compile(r"(nccl|cuFile|cufile|cusparseLt|curand|cufft|cupti|nvrtc|"
                   r"nvJitLink|cublas|cudnn|cusolver|cuda|nvshmem|cu[A-Z])")


def readelf(*args):
    return subprocess.run(("readelf", "-W", *args), check=True, text=True,
                          capture_output=True).stdout


def wanted(folder):
    """Returns the missing libraries, each with its functions."""
    stubs, undefined, defined = {}, [], set()

    for path in glob.glob(folder + "/lib*.so*"):
        for name in re.findall(r"Shared library: \[(.*?)\]",
                               readelf("-d", path)):
            if CUDA.match(name) and name != "libcuda.so.1":
                stubs[name] = set()

        for line in readelf("--dyn-syms", path).splitlines():
            field = line.split()

            if len(field) < 8 or not field[0][:-1].isdigit():
                continue

            name, _, version = field[7].partition("@")

            if field[6] != "UND":
                defined.add(name)
            elif field[4] != "WEAK":
                undefined.append((name, version.lstrip("@")))

    def like(part):
        return next(name for name in stubs if part in name)

    for name, version in undefined:
        if version in stubs:
            stubs[version].add(name)        # libcudart.so.13 and the like
        elif version == "NVSHMEM":
            stubs[like("nvshmem")].add(name)
        elif not version and name not in defined and LOOSE.match(name):
            stubs[like("nccl")].add(name)   # any of these libraries will do

    return {name: functions for name, functions in stubs.items()
            if not os.path.exists(os.path.join(folder, name))}


def build(path, functions, tmp):
    name = os.path.basename(path)
    source, versions = os.path.join(tmp, "s.c"), os.path.join(tmp, "s.map")

    with open(source, "w") as f:
        for function in sorted(functions):
            text = "String" in function or "GetErrorName" in function
            f.write("%s%s(void) { return %s; }\n" % (
                "const char *" if text else "int ", function,
                '"no CUDA"' if text else "100"))

    # functions of nccl are used without a version

    with open(versions, "w") as f:
        f.write("%s { global: *; };\n"
                % ("NVSHMEM" if "nvshmem" in name else name))

    command = ["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", "-o", path,
               source, "-Wl,-soname," + name]

    if functions and "nccl" not in name:
        command.append("-Wl,--version-script," + versions)

    subprocess.run(command, check=True)


def main():
    folder = os.path.join(sys.argv[1], "torch", "lib")

    with tempfile.TemporaryDirectory() as tmp:
        for name, functions in sorted(wanted(folder).items()):
            build(os.path.join(folder, name), functions, tmp)
            print("%s: %d functions" % (name, len(functions)))


main()

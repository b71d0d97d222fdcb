"""Runs a kernel that indexes an array of its own with the number given; 8 is past the end."""

import sys

import numpy as np
from emulator import Kernel, Source, compile_kernels


def main():
    path = "tests/metal/controls/private_array.metal"
    library = compile_kernels(Source("private_array", [path], [Kernel("index", "control_index")]))
    out = np.zeros(4, np.uint32)
    library.launch("index", [np.array([int(sys.argv[1])], np.uint32), out], (4, 1, 1), (4, 1, 1))
    print("sum", out.sum())


if __name__ == "__main__":
    main()

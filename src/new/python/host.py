"""Runs the kernel on simulated PEs."""

from pathlib import Path

import numpy as np

import warpweft as weft

KERNEL = Path(__file__).with_name("my_kernel.weft")
N = 4096  # elements on each PE
CTAS = 8  # that each PE launches


def all_sums(pes: int) -> np.ndarray:
    """The results of all PEs, where PE p begins with p + 1 everywhere."""
    kernel = weft.compile(KERNEL, N=N)
    with weft.World.simulated(pes) as world:
        x, out = world.tensor(N), world.tensor(N)
        for pe in range(pes):
            x[pe] = pe + 1
        kernel[CTAS](x, out, world.barrier(CTAS), world.team)
        return np.stack([np.array(out[pe]) for pe in range(pes)])


if __name__ == "__main__":
    for pe, row in enumerate(all_sums(4)):
        print(f"PE {pe}: {row[:4]}")

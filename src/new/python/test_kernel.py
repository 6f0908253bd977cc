import numpy as np
from host import KERNEL, all_sums

import warpweft as weft


def test_the_sums():
    np.testing.assert_array_equal(all_sums(3), np.full((3, 4096), 6.0))


def test_the_kernel_is_correct():
    """Looks for races, deadlocks and wrong results with several sizes and schedules."""
    report = weft.check(KERNEL, pes=[1, 2, 3], seeds=3)
    assert report.clean, str(report)

"""Compiles `gemm.cu` to PTX with NVRTC: `CUTLASS=dir CCCL=dir python3 make.py`, `dir` having the headers.

Made with CUTLASS 4.7.0 (BSD-3-Clause), whose templates the kernel is put together from, and NVRTC 13.5.
"""

import os
import pathlib
import sys

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parent / "nvrtc"))
from make import compile  # noqa: E402

text = compile(here / "gemm.cu", "90a", [f"-I{os.environ['CUTLASS']}", f"-I{os.environ['CCCL']}", "-default-device"])
(here / "gemm.sm_90a.ptx").write_text(text)
print(len(text.splitlines()), "lines")

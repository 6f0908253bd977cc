"""Compiles `kernels.py` to PTX, without a GPU: `python make.py` where `import triton` works.

Made with Triton 3.9.0. Triton adds two pointers behind a kernel's own parameters: global scratch memory (used by
kernels that make tensor descriptors) and the profiler's; constants and arguments equal to 1 are not parameters.
"""

import os
import pathlib
import re
import sys

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"

import kernels
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

here = pathlib.Path(__file__).parent
F, H, B, I = "*fp32", "*fp16", "*bf16", "*i32"


ONLY = sys.argv[1:]  # names of cases; all if none


def matmul(ta, tb, tc, acc, bm=64, bn=64, bk=32, precision="tf32", nt=True):
    """`nt`: B is N x K, else K x N."""
    strides = {"sak": 1, "sbk": 1} if nt else {"sak": 1, "sbn": 1}
    sizes = {n: "i32" for n in ["M", "N", "K", "sam", "sak", "sbk", "sbn", "scm"] if n not in strides}
    return ("matmul", {"a": ta, "b": tb, "c": tc, **sizes},
            {"BM": bm, "BN": bn, "BK": bk, "ACC": acc, "PRECISION": precision, **strides})


tile = {"BM": 128, "BN": 64, "BK": 64}
# Name: kernel, types of its parameters, constants, warps, stages, targets.
CASES = {
    "vector_add": ("vector_add", {"x": F, "y": F, "out": F, "n": "i32"}, {"BLOCK": 1024}, 4, 1, [80, 90]),
    "softmax": ("softmax", {"x": F, "out": F, "stride": "i32", "n": "i32"}, {"BLOCK": 1024}, 4, 1, [80, 90]),
    "layernorm": ("layernorm", {"x": H, "w": F, "b": F, "out": H, "n": "i32", "eps": "fp32"}, {"BLOCK": 512}, 2, 1, [80, 90]),
    "gelu": ("gelu", {"x": F, "out": F, "n": "i32"}, {"BLOCK": 256}, 4, 1, [80]),
    "dropout": ("dropout", {"x": F, "out": F, "p": "fp32", "seed": "i32", "n": "i32"}, {"BLOCK": 512}, 4, 1, [80]),
    "histogram": ("histogram", {"x": I, "out": I, "n": "i32"}, {"BINS": 64, "BLOCK": 512}, 4, 1, [80]),
    "scatter_max": ("scatter_max", {"x": F, "key": I, "out": F, "n": "i32"}, {"BLOCK": 256}, 4, 1, [80]),
    "transpose": ("transpose", {"x": H, "out": H, "rows": "i32", "columns": "i32"}, {"BLOCK": 64}, 4, 1, [80, 90]),
    "scan": ("scan", {"x": I, "out": I, "n": "i32"}, {"BLOCK": 1024}, 4, 1, [80]),
    "argmax": ("argmax", {"x": F, "value": F, "index": I, "n": "i32"}, {"BLOCK": 512}, 4, 1, [80]),
    "sort": ("sort", {"x": I, "out": I}, {"BLOCK": 256}, 4, 1, [80]),
    "doubles": ("doubles", {"x": "*fp64", "out": "*fp64", "n": "i32"}, {"BLOCK": 256}, 4, 1, [80]),
    "matmul_f16": (*matmul(H, H, H, tl.float32), 4, 3, [80, 90]),
    "matmul_bf16": (*matmul(B, B, F, tl.float32, nt=False), 4, 2, [80, 90]),
    "matmul_tf32": (*matmul(F, F, F, tl.float32), 4, 2, [80, 90]),
    "matmul_s8": (*matmul("*i8", "*i8", I, tl.int32, bk=64), 4, 2, [80, 90]),
    "matmul_fp8": (*matmul("*fp8e4nv", "*fp8e4nv", F, tl.float32, bk=64), 4, 2, [89, 90]),
    "matmul_f16_f16": (*matmul(H, H, H, tl.float16), 4, 2, [80, 90]),
    "matmul_f64": (*matmul("*fp64", "*fp64", "*fp64", tl.float64, 32, 32, 16, "ieee"), 4, 1, [80]),
    "matmul_tma": ("matmul_tma", {"a": "tensordesc<fp16[128,64]>", "b": "tensordesc<fp16[64,64]>",
                                  "c": "tensordesc<fp16[128,64]>", "M": "i32", "N": "i32", "K": "i32"}, tile, 4, 3, [90]),
    "matmul_descriptor": ("matmul_descriptor", {"a": H, "b": H, "c": H, "M": "i32", "N": "i32", "K": "i32"}, tile, 4, 3, [90]),
    "attention": ("attention", {"q": H, "k": H, "v": H, "out": H, "n": "i32", "scale": "fp32"},
                  {"BM": 64, "BN": 32, "D": 64}, 4, 2, [80, 90]),
}

if ONLY:
    CASES = {n: c for n, c in CASES.items() if n in ONLY}
for name, (kernel, types, constants, warps, stages, targets) in CASES.items():
    fn = getattr(kernels, kernel)
    signature = {a: types.get(a, "constexpr") for a in fn.arg_names}
    # Pointers and sizes are multiples of 16, as an allocator and most models give them.
    wide = {(i,): [["tt.divisibility", 16]] for i, a in enumerate(fn.arg_names)
            if str(types.get(a, "")).startswith("*") or kernel.startswith(("matmul", "attention")) and types.get(a) == "i32"}
    for target in targets:
        src = ASTSource(fn, signature, constexprs={(fn.arg_names.index(a),): v for a, v in constants.items()}, attrs=wide)
        out = compile(src, target=GPUTarget("cuda", target, 32), options={"num_warps": warps, "num_stages": stages})
        # Debug sections are the half of it and name places on the machine that made it.
        text = re.sub(r"\t?\.section\s+\.debug.*?\n\t?\}\n", "", out.asm["ptx"], flags=re.S)
        text = re.sub(r", function_name \S+, inlined_at \d+ \d+ \d+", "", text)
        text = re.sub(r'(\.file\s+\d+) ".*/', r'\1 "', text)
        text = re.sub(r"\n{2,}", "\n", text).rstrip() + "\n"
        head = f"// Triton {triton.__version__}; {warps} warps, {out.metadata.shared} bytes of dynamic shared memory\n"
        path = here / f"{name}.sm_{target}.ptx"
        path.write_text(head + text)
        print(path.name, len(text.splitlines()), "lines", out.metadata.shared, "shared", out.metadata.global_scratch_size, "scratch")

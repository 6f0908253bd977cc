#!/usr/bin/env python3
"""How long a block's put takes to compile with NVSHMEM's device bitcode: Triton, CuTe DSL and weft, in one run.

    pip install triton nvidia-cutlass-dsl
    nvshmem_put.py --weft target/release/weft 3.4.5=PATH/libnvshmem_device.bc 3.8.0=PATH/libnvshmem_device_sm_90.bc

No GPU is needed: all compile for sm_90a to a cubin and load nothing. The kernel of each is the same: 256 threads put
256 KiB to the next PE by `nvshmemx_putmem_block`. Every sample is a process of its own with empty caches, except where
a row says otherwise; tools take turns within a run, so load of the machine meets all of them.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

WEFT = """
kernel put(x: symm<f32, (65536):(1)>, out: symm<f32, (65536):(1)>) block(256) grid(1) {
    put<block>(out, x, (my_pe() + 1) % n_pes());
}
"""
BYTES = 65536 * 4
# Where weft finds what makes cubins; where both are set, a row more shows what the search for them takes.
TOOLS = ("WEFT_NVJITLINK", "WEFT_PTXAS")


def triton_compiler(bitcode):
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.language import core

    # `extern_elementwise` takes no pointers beside integers, and no call without arguments: the op beneath does. It
    # needs a result, so the put is called as if it returned an i32, which nothing reads.
    @core.extern
    def call(name, args, _semantic=None):
        builder = _semantic.builder
        handles = [_semantic.to_tensor(arg).handle for arg in args]
        symbol = core._unwrap_if_constexpr(name)
        result = builder.create_extern_elementwise("nvshmem", "", symbol, handles, core.int32.to_ir(builder), False)
        return core.tensor(result, core.int32)

    def put(x, out, n: tl.constexpr):
        pe = (call("nvshmem_my_pe", ()) + 1) % call("nvshmem_n_pes", ())
        call("nvshmemx_putmem_block", (out, x, tl.full((), n, tl.uint64), pe))

    # Triton looks names up in a function's module.
    globals().update(tl=tl, call=call)
    source = triton.compiler.ASTSource(triton.jit(put), {"x": "*fp32", "out": "*fp32"}, {"n": BYTES})
    options = {"num_warps": 8, "extern_libs": {"nvshmem": bitcode}}
    return lambda: triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["cubin"]


def cute_compiler(bitcode):
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import make_fake_compact_tensor

    # nvshmem4py declares these alike, but finds its bitcode by the current GPU.
    source = cute.BitCode(bitcode)

    @cute.extern(name="nvshmem_my_pe", source=source)
    def my_pe() -> cutlass.Int32: ...

    @cute.extern(name="nvshmem_n_pes", source=source)
    def n_pes() -> cutlass.Int32: ...

    @cute.extern(name="nvshmemx_putmem_block", source=source)
    def putmem_block(out: cute.Pointer, x: cute.Pointer, n: cutlass.Uint64, pe: cutlass.Int32) -> None: ...

    @cute.kernel
    def kernel(x: cute.Tensor, out: cute.Tensor):
        putmem_block(out.iterator, x.iterator, cutlass.Uint64(BYTES), (my_pe() + 1) % n_pes())

    @cute.jit
    def put(x: cute.Tensor, out: cute.Tensor):
        kernel(x, out).launch(grid=(1, 1, 1), block=(256, 1, 1))

    def tensor():
        return make_fake_compact_tensor(cutlass.Float32, (BYTES // 4,))

    return lambda: cute.compile(put, tensor(), tensor()).artifacts.CUBIN


COMPILERS = {"triton": triton_compiler, "cute": cute_compiler}


def child(tool, bitcode):
    """Compiles twice, and prints the seconds of both as JSON."""
    compiler = COMPILERS[tool](bitcode)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        cubin = compiler()
        seconds.append(time.perf_counter() - start)
        # NVSHMEM's state of the device: it is there if its functions are.
        assert b"nvshmemi_device_state" in cubin, "NVSHMEM's functions were not linked"
    print(json.dumps({"first": seconds[0], "again": seconds[1], "bytes": len(cubin)}))


def timed(command, env):
    start = time.perf_counter()
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise RuntimeError((done.stderr + done.stdout).strip())
    return seconds, done.stdout


def peer(tool, bitcode, folder):
    """Rows of a Python tool: its process, without the second compilation, and both compilations in it."""
    env = {
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_CACHE_DIR": folder,
        "CUTE_DSL_ARCH": "sm_90a",
        "CUTE_DSL_NO_CACHE": "1",
        "CUTE_DSL_DISABLE_FILE_CACHING": "1",
        "CUTE_DSL_KEEP": "cubin",
        "CUTE_DSL_DUMP_DIR": folder,
    }
    seconds, out = timed([sys.executable, __file__, "--child", tool, bitcode], env)
    told = json.loads(out.splitlines()[-1])
    return {
        "process to cubin": seconds - told["again"],
        "first compilation in it": told["first"],
        "second compilation in it": told["again"],
        "size of cubin": told["bytes"],
    }


def weft(program, bitcode, folder):
    """Rows of ours: every sample a process. The object of NVSHMEM's functions is made by the first cubin and kept."""
    file, output = os.path.join(folder, "put.weft"), os.path.join(folder, "output")
    with open(file, "w") as f:
        f.write(WEFT)

    def compiled(emit, cache, env):
        command = [program, "compile", "--transport", "nvshmem", "--nvshmem", bitcode]
        env = env | {"WEFT_CACHE": os.path.join(folder, cache)}
        seconds, _ = timed([*command, "--emit", emit, "-o", output, file], env)
        with open(output, "rb") as f:
            assert b"nvshmemi_device_state" in f.read(), "NVSHMEM's functions were not linked"
        return seconds

    # A variable that is empty counts as one that is not set: then weft asks python3 where the tools are.
    asked = {name: "" for name in TOOLS}
    rows = {
        "process to PTX": compiled("ptx", "empty", asked),
        "process to cubin": compiled("cubin", "cache", asked),
        "process to cubin, object cached": compiled("cubin", "cache", asked),
    }
    if all(os.environ.get(name) for name in TOOLS):
        rows["the same, tools named"] = compiled("cubin", "cache", {})
    return rows | {"size of cubin": os.path.getsize(output)}


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--weft", default="weft", help="the program")
    parser.add_argument("bitcode", nargs="+", help="VERSION=FILE")
    args = parser.parse_args()
    print(f"triton {version('triton')}, nvidia-cutlass-dsl {version('nvidia-cutlass-dsl')}, {args.runs} runs")

    samples, failures = {}, {}
    for _ in range(args.runs):
        for name, file in (item.split("=", 1) for item in args.bitcode):
            for tool in ("triton", "cute", "weft"):
                if (tool, name) in failures:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        rows = weft(args.weft, file, folder) if tool == "weft" else peer(tool, file, folder)
                    except (RuntimeError, OSError) as e:
                        failures[tool, name] = str(e)
                        continue
                for row, value in rows.items():
                    samples.setdefault((tool, row, name), []).append(value)
    for (tool, row, name), values in sorted(samples.items(), key=lambda item: item[0][::2]):
        low, middle, high = (f(values) for f in (min, statistics.median, max))
        text = f"{middle:8} bytes" if row.startswith("size") else f"{middle:8.3f} s ({low:.3f} to {high:.3f})"
        print(f"{tool:8}{name:8}{row:33}{text}")
    for (tool, name), why in failures.items():
        lines = [line for line in why.splitlines() if line and not line.startswith("warning")]
        print(f"{tool} with NVSHMEM {name} failed:", *lines[-12:], sep="\n    ")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()

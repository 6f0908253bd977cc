"""Runs the instruction corpus on a GPU through the CUDA driver, and writes the hashes of its results.

    WEFT_CORPUS=DIR cargo test -p weft-sim --test hardware      # writes the corpus
    python3 run_corpus.py DIR OUT                               # OUT/h200.txt, OUT/differences.txt
"""

import ctypes
import pathlib
import struct
import sys

corpus, out = map(pathlib.Path, sys.argv[1:3])
cuda = ctypes.CDLL("libcuda.so.1")


def check(code, what):
    if code:
        sys.exit(f"{what}: CUDA error {code}")


check(cuda.cuInit(0), "init")
device, context = ctypes.c_int(), ctypes.c_void_p()
check(cuda.cuDeviceGet(ctypes.byref(device), 0), "device")
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "context")
check(cuda.cuCtxSetCurrent(context), "context")
name = ctypes.create_string_buffer(100)
cuda.cuDeviceGetName(name, 100, device)
driver = ctypes.c_int()
cuda.cuDriverGetVersion(ctypes.byref(driver))


def alloc(size):
    p = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size)), "alloc")
    return p


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def is_nan(bits, key):
    if "f64" in key:
        return bits & (1 << 63) - 1 > 0x7FF << 52
    return "x2" not in key and bits & 0x7FFFFFFF > 0x7F800000


lines, differences = [], []
d_in, d_out = alloc(1 << 20), alloc(1 << 20)
for entry in (corpus / "index.tsv").read_text().splitlines():
    i, ins, outs, kind, key = entry.split("\t")
    ins, outs = int(ins), int(outs)
    data = (corpus / f"{i}.in").read_bytes()
    threads = len(data) // (8 * ins)
    size = threads * outs * 8
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    code = cuda.cuModuleLoadData(ctypes.byref(module), (corpus / f"{i}.ptx").read_bytes() + b"\0")
    if code:
        lines.append(f"rejected-{code} {key}")
        continue
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"k"), key)
    check(cuda.cuMemcpyHtoD_v2(d_in, data, ctypes.c_size_t(len(data))), key)
    check(cuda.cuMemsetD8_v2(d_out, 0, ctypes.c_size_t(size)), key)
    params = (ctypes.c_void_p * 2)(ctypes.addressof(d_out), ctypes.addressof(d_in))
    check(cuda.cuLaunchKernel(function, threads // 256, 1, 1, 256, 1, 1, 0, None, params, None), key)
    result = ctypes.create_string_buffer(size)
    check(cuda.cuMemcpyDtoH_v2(result, d_out, ctypes.c_size_t(size)), key)
    cuda.cuModuleUnload(module)
    if kind == "exact":
        lines.append(f"{fnv(result.raw):016x} {key}")
    sim = (corpus / f"{i}.sim").read_bytes()
    if sim != result.raw:
        words = lambda b: struct.unpack(f"<{len(b) // 8}Q", b)
        x, s, g = words(data), words(sim), words(result.raw)
        bad = [t for t in range(threads) if s[t * outs:(t + 1) * outs] != g[t * outs:(t + 1) * outs]]
        differences.append(f"{key}: {len(bad)} of {threads}")
        if kind != "exact":
            numeric = [t for t in bad if not is_nan(s[t], key) and not is_nan(g[t], key)]
            worst = max(numeric, key=lambda t: abs(s[t] - g[t]), default=bad[0])
            differences[-1] += f" ({len(bad) - len(numeric)} with NaN), bits at most {abs(s[worst] - g[worst])} apart"
            bad = [worst, *bad[:2]]
        for t in bad[:6]:
            h = lambda v, n: " ".join(f"{w:x}" for w in v[t * n:(t + 1) * n])
            differences.append(f"    in {h(x, ins)}  simulator {h(s, outs)}  gpu {h(g, outs)}")
out.mkdir(parents=True, exist_ok=True)
head = f"# {name.value.decode()}, driver {driver.value}: FNV-1a of each case's outputs\n"
(out / "h200.txt").write_text(head + "\n".join(lines) + "\n")
(out / "differences.txt").write_text("\n".join(differences) + "\n")
print(f"{len(lines)} cases, {sum(not d.startswith(' ') for d in differences)} differ")
print("\n".join(differences)[:9000])

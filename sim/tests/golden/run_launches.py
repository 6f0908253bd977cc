"""Runs the launches of the hardware corpus on a GPU through the CUDA driver.

    WEFT_CORPUS=DIR cargo test -p weft-sim --test hardware_launches     # writes them
    python3 run_launches.py DIR OUT     # OUT/h200_launches.txt: hashes; OUT/raw.txt: results; OUT/maps.txt

A child process runs them one by one; where one fails or hangs, the next child goes on behind it.
"""

import base64
import ctypes
import json
import pathlib
import select
import subprocess
import sys
import zlib

corpus, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
jobs = [line.split("\t") for line in (corpus / "index.tsv").read_text().splitlines()]
HANG = 10


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


class Cuda:
    """The driver, on device 0; allocations live as long as the process."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)
        pool = ctypes.c_uint64()
        self.size = 64 << 20
        self.call("cuMemAlloc_v2", ctypes.byref(pool), ctypes.c_size_t(self.size))
        self.pool = pool.value

    def call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'?').decode()}")

    def name(self):
        text, version = ctypes.create_string_buffer(100), ctypes.c_int()
        self.call("cuDeviceGetName", text, 100, self.device)
        self.call("cuDriverGetVersion", ctypes.byref(version))
        return f"{text.value.decode()}, driver {version.value}"

    def load(self, i, name):
        """The PTX, or, where this driver does not take it, the cubin. The compilers' PTX is taken as a cubin made by
        `ptxas --fmad false`, so that no multiplication and addition without a rounding are made one."""
        module, errors = ctypes.c_void_p(), []
        kinds = ["ptx", "cubin"]
        for kind in kinds[::-1] if name.startswith(("nvrtc/", "triton/")) else kinds:
            path = corpus / kind / f"{i}.{kind}"
            try:
                self.call("cuModuleLoadData", ctypes.byref(module), path.read_bytes() + b"\0")
                return module, " ".join([kind, *errors])
            except (RuntimeError, FileNotFoundError) as e:
                errors.append(f"({kind}: {e})")
        raise RuntimeError("; ".join(errors))

    def encode(self, address, data_type, dims, strides, box, steps, swizzle, nan):
        numbers = lambda text: [int(x) for x in text.split(",") if x]
        dims, strides, box, steps = map(numbers, (dims, strides, box, steps))
        room = ctypes.create_string_buffer(192)
        at = -ctypes.addressof(room) % 64
        rank = len(dims)
        self.call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(ctypes.addressof(room) + at),
            ctypes.c_int(int(data_type)),
            ctypes.c_uint32(rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*dims),
            (ctypes.c_uint64 * max(rank - 1, 1))(*strides),
            (ctypes.c_uint32 * rank)(*box),
            (ctypes.c_uint32 * rank)(*steps),
            ctypes.c_int(0),
            ctypes.c_int(int(swizzle)),
            ctypes.c_int(0),
            ctypes.c_int(int(nan)),
        )
        return room, at

    def run(self, job, blob):
        i, name, entry, grid, block, shared, raw, args = job
        at, values, results, maps, keep = self.pool, [], [], [], []

        def place(size):
            nonlocal at
            here, at = at, (at + size + 1023) // 512 * 512
            if at > self.pool + self.size:
                raise RuntimeError("too little memory")
            return here

        def given(where):
            start, size = map(int, where.split("+"))
            blob.seek(start)
            data, here = blob.read(size), place(size)
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(here), data, ctypes.c_size_t(size))
            return here, size

        for arg in args.split(" "):
            kind, _, rest = arg.partition(":")
            if kind in ("in", "inout"):
                here, size = given(rest)
                values.append(ctypes.c_uint64(here))
                if kind == "inout":
                    results.append((here, size))
            elif kind == "out":
                here, size = place(int(rest)), int(rest)
                self.call("cuMemsetD8_v2", ctypes.c_uint64(here), 0, ctypes.c_size_t(size))
                values.append(ctypes.c_uint64(here))
                results.append((here, size))
            elif kind == "i32":
                values.append(ctypes.c_int32(int(rest) & 0xFFFFFFFF))
            elif kind == "i64":
                values.append(ctypes.c_int64(int(rest)))
            elif kind == "scratch":
                here = place(int(rest))
                self.call("cuMemsetD8_v2", ctypes.c_uint64(here), 0, ctypes.c_size_t(int(rest)))
                values.append(ctypes.c_uint64(here))
            elif kind == "null":
                values.append(ctypes.c_uint64(0))
            elif kind == "map":
                where, *how, written = rest.split(":")
                here, size = given(where)
                room, offset = self.encode(here, *how)
                keep.append(room)
                values.append((ctypes.c_char * 128).from_buffer(room, offset))
                maps.append(f"{':'.join(how)} at {here:x}: {bytes(values[-1]).hex()}")
                if written == "1":
                    results.append((here, size))
            else:
                raise RuntimeError(f"argument {arg}")
        module, how = self.load(i, name)
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        if int(shared) > 48 << 10:
            self.call("cuFuncSetAttribute", function, 8, int(shared))
        params = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        shape = [int(x) for x in f"{grid},{block}".split(",")]
        self.call("cuLaunchKernel", function, *shape, int(shared), None, params, None)
        self.call("cuCtxSynchronize")
        data = b""
        for here, size in results:
            part = ctypes.create_string_buffer(size)
            self.call("cuMemcpyDtoH_v2", part, ctypes.c_uint64(here), ctypes.c_size_t(size))
            data += part.raw
        self.call("cuModuleUnload", module)
        return {
            "hash": f"{fnv(data):016x}",
            "how": how,
            "raw": base64.b64encode(zlib.compress(data[: int(raw)], 9)).decode() if int(raw) else "",
            "maps": maps,
        }


def child(first):
    say = lambda what: print(json.dumps(what), flush=True)
    cuda = Cuda()
    say({"device": cuda.name()})
    with open(corpus / "data.bin", "rb") as blob:
        for n in range(first, len(jobs)):
            try:
                say({"n": n, **cuda.run(jobs[n], blob)})
            except Exception as e:
                say({"n": n, "hash": f"failed {e}", "how": "", "raw": "", "maps": []})
                if any(s in str(e) for s in ("cuCtxSynchronize", "cuMemcpy", "cuMemset")):
                    return  # the context is gone


def parent():
    done, device, lines, raw, maps = 0, "?", [], [], []
    idle = 0
    while done < len(jobs) and idle < 3:
        before = done
        process = subprocess.Popen([*[sys.executable, __file__], *sys.argv[1:3], str(done)], stdout=subprocess.PIPE)
        while True:
            if not select.select([process.stdout], [], [], HANG)[0]:
                process.kill()
                lines.append(f"hangs {jobs[done][1]}")
                done += 1
                break
            line = process.stdout.readline()
            if not line:
                break
            said = json.loads(line)
            device = said.get("device", device)
            if "n" in said:
                name = jobs[said["n"]][1]
                lines.append(f"{said['hash']} {name}")
                if "(" in said["how"]:
                    print(f"{name}: {said['how']}")
                if said["raw"]:
                    raw.append(f"{name}\t{said['raw']}")
                maps += [f"{name}\t{m}" for m in said["maps"]]
                done = said["n"] + 1
        process.wait()
        idle = 0 if done > before else idle + 1
    out.mkdir(parents=True, exist_ok=True)
    head = f"# {device}: FNV-1a of each launch's results\n"
    (out / "h200_launches.txt").write_text(head + "\n".join(lines) + "\n")
    (out / "raw.txt").write_text("\n".join(raw) + "\n")
    (out / "maps.txt").write_text("\n".join(maps) + "\n")
    wrong = [line for line in lines if line.startswith(("failed", "hangs"))]
    print(f"{device}: {len(lines)} of {len(jobs)} launches, {len(wrong)} failed")
    print("\n".join(wrong)[:6000])


child(int(sys.argv[3])) if len(sys.argv) > 3 else parent()

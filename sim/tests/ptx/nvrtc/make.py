"""Compiles the kernels of this folder to PTX with NVRTC: `python3 make.py`.

Needs the wheels nvidia-cuda-nvrtc, nvidia-cuda-runtime and nvidia-cuda-crt (headers), no GPU.
Each .ptx names its compiler in its first lines; they were made with NVRTC 13.5.
"""

import ctypes
import pathlib
import re
import sysconfig

here = pathlib.Path(__file__).parent
cuda = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13"
nvrtc = ctypes.CDLL(str(next((cuda / "lib").glob("libnvrtc.so.*"))))

TARGETS = {
    "elementwise": ["80", "90"],
    "reduce": ["80", "90"],
    "gemm_sm80": ["80"],
    "gemm_sm89": ["89"],
    "gemm_sm90": ["90a"],
}


def compile(path, arch, more=()):
    """PTX of a file, in lines without gaps."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), path.name.encode(), 0, None, None)
    options = [f"-arch=compute_{arch}", "-std=c++17", f"-I{cuda / 'include'}", *more]
    raw = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    code = nvrtc.nvrtcCompileProgram(program, len(options), raw)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if code:
        raise SystemExit(f"{path.name}: {log.value.decode()}")
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    return re.sub(r"\n{3,}", "\n\n", ptx.value.decode()).rstrip() + "\n"


def main():
    for name, targets in TARGETS.items():
        for arch in targets:
            text = compile(here / f"{name}.cu", arch)
            (here / f"{name}.sm_{arch}.ptx").write_text(text)
            print(name, arch, len(text.splitlines()), "lines")


if __name__ == "__main__":
    main()

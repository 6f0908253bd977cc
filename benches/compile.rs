//! Compile times. For the two-shot allreduce, from text to PTX: in a warm process, in a new process, and NVRTC with the
//! same kernel in CUDA C++. For the GEMM, in a warm process: text to PTX, text to cubin, and the cubin from the kernel
//! cache on the disk.
//!
//! Run on a quiet machine: `cargo bench --bench compile`, or `cargo bench --bench compile gemm` for a part. NVRTC and
//! nvJitLink are taken from NVIDIA's wheels (`pip install nvidia-cuda-nvrtc`, `weft setup`). Rows that need a missing
//! library are left out, and a line says so.

#![allow(unsafe_code, reason = "NVRTC is a C library")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::ffi::{CString, c_char, c_int, c_void};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use weft::gpu::cache::{Cache, Entry, Key};
use weft::runtime::jitlink::{Input, JitLink};
use weft::tools::Tool;
use weft::{Define, KernelFile, Options};

const TEXT: &str = include_str!("../examples/allreduce_two_shot.weft");
const GEMM: &str = include_str!("../examples/gemm.weft");
const CUDA: &str = include_str!("allreduce_two_shot.cu");

fn warm(c: &mut Criterion) {
    for (name, dtype) in [("f32", weft::ir::Scalar::F32), ("bf16", weft::ir::Scalar::BF16)] {
        c.bench_function(&format!("text to PTX, warm, {name}"), |b| {
            b.iter(|| {
                let mut options = Options::new("sm_90a".parse().unwrap());
                options.defines.insert("T".into(), Define::Dtype(dtype));
                KernelFile::parse("allreduce_two_shot.weft", TEXT).unwrap().compile(&options).unwrap().ptx
            });
        });
    }
}

/// Text to PTX, text to cubin, and the lookup of a cubin that another process has compiled, each in
/// a warm process.
fn gemm(c: &mut Criterion) {
    let options = Options::new("sm_90a".parse().unwrap());
    let parsed = || KernelFile::parse("gemm.weft", GEMM).unwrap();
    let compiled = || parsed().compile(&options).unwrap();
    c.bench_function("gemm: text to PTX, warm", |b| b.iter(compiled));
    let linker = match JitLink::get() {
        Ok(linker) => linker,
        Err(e) => return println!("cubins left out: {e}"),
    };
    let cubin = || linker.link("sm_90a", None, &[Input::Ptx("gemm.ptx", &compiled().ptx)]).unwrap();
    c.bench_function("gemm: text to cubin, warm", |b| b.iter(cubin));
    let folder = TempDir::new().unwrap();
    let entry = Entry { info: compiled().describe().unwrap(), image: cubin() };
    Cache::at(folder.path()).put(&Key::of(&parsed(), &options), entry);
    c.bench_function("gemm: text to cubin of the kernel cache", |b| {
        b.iter(|| Cache::at(folder.path()).get(&Key::of(&parsed(), &options)).unwrap());
    });
}

fn cold(c: &mut Criterion) {
    c.bench_function("text to PTX, cold process", |b| {
        b.iter(|| {
            let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
            weft.args(["compile", "examples/allreduce_two_shot.weft"]).stdout(Stdio::null());
            assert!(weft.status().unwrap().success());
        });
    });
}

/// The functions of NVRTC that compile a text to PTX.
struct Nvrtc {
    library: libloading::Library,
}

type Program = *mut c_void;

impl Nvrtc {
    fn open() -> Result<Nvrtc, String> {
        let path = Tool::Nvrtc.find().map_err(|e| e.to_string())?;
        // SAFETY: the initialisers of NVIDIA's library have no preconditions.
        unsafe { libloading::Library::new(path) }.map(|library| Nvrtc { library }).map_err(|e| e.to_string())
    }

    fn ptx(&self, text: &str) -> Vec<u8> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        let text = CString::new(text).unwrap();
        // For sm_90a, NVRTC would also assemble.
        let options = [c"--gpu-architecture=compute_90a".as_ptr()];
        let mut program: Program = std::ptr::null_mut();
        let mut size = 0usize;
        // SAFETY: the signatures are those of nvrtc.h; pointers outlive the calls, and the buffer
        // has the size that NVRTC asked for.
        unsafe {
            let create: libloading::Symbol<'_, Create> = self.library.get(b"nvrtcCreateProgram").unwrap();
            let compile: libloading::Symbol<
                '_,
                unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
            > = self.library.get(b"nvrtcCompileProgram").unwrap();
            let get_size: libloading::Symbol<'_, unsafe extern "C" fn(Program, *mut usize) -> c_int> =
                self.library.get(b"nvrtcGetPTXSize").unwrap();
            let get: libloading::Symbol<'_, unsafe extern "C" fn(Program, *mut c_char) -> c_int> =
                self.library.get(b"nvrtcGetPTX").unwrap();
            let destroy: libloading::Symbol<'_, unsafe extern "C" fn(*mut Program) -> c_int> =
                self.library.get(b"nvrtcDestroyProgram").unwrap();
            let none = std::ptr::null();
            assert_eq!(create(&mut program, text.as_ptr(), c"two_shot.cu".as_ptr(), 0, none, none), 0);
            assert_eq!(compile(program, 1, options.as_ptr()), 0, "NVRTC rejects the kernel");
            assert_eq!(get_size(program, &mut size), 0);
            let mut out = vec![0u8; size];
            assert_eq!(get(program, out.as_mut_ptr().cast()), 0);
            destroy(&mut program);
            out
        }
    }
}

fn nvrtc(c: &mut Criterion) {
    match Nvrtc::open() {
        Ok(nvrtc) => {
            let ptx = String::from_utf8_lossy(&nvrtc.ptx(CUDA)).into_owned();
            assert!(ptx.contains("multimem.ld_reduce"), "NVRTC compiled a different kernel");
            c.bench_function("CUDA C++ to PTX, NVRTC, warm", |b| b.iter(|| nvrtc.ptx(CUDA)));
        }
        Err(e) => println!("NVRTC left out: {e}"),
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(40);
    targets = warm, gemm, cold, nvrtc
}
criterion_main!(benches);

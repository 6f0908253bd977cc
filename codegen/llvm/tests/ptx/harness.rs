//! Builds kernels, compiles them, and runs ptxas.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use weft_ir::builder::Built;
use weft_ir::machine::Verified;
use weft_ir::machine::{Builder, Kernel, Module, Type};
use weft_ir::verify::verify;
use weft_ir::{Address, Memory, Scalar, Space, Value};
use weft_isa::Target;
use weft_llvm::{Options, Output, emit};

/// A target by name.
pub fn target(name: &str) -> Target {
    name.parse().unwrap()
}

/// A kernel of 128 threads with an address parameter of 16 bytes' alignment.
pub fn kernel(name: &str, body: impl FnOnce(&mut Builder, Value) -> Built<()>) -> Kernel {
    let mut b = Builder::new(name, [128, 1, 1]);
    let x = b.pointer_param("x", Space::Global, 16).unwrap();
    let at = pointer(&mut b, x, 0).unwrap();
    body(&mut b, at).unwrap();
    b.finish()
}

/// The address `bytes` bytes after a tensor parameter or a pointer.
pub fn pointer(b: &mut Builder, x: Value, bytes: i64) -> Built<Value> {
    let bytes = b.int(Scalar::I64, bytes)?;
    b.emit(Address::PtrAdd { ptr: x, bytes })
}

/// An address in a memory space, from a parameter.
pub fn address(b: &mut Builder, name: &str, space: Space) -> Built<Value> {
    let a = b.param(name, Type::Scalar(Scalar::I64))?;
    b.emit_as(Address::FromInt { a }, Type::Pointer(space))
}

/// Shared memory whose first byte is at a multiple of 16.
pub fn shared(b: &mut Builder, bytes: u64) -> Built<Value> {
    b.emit(Address::Shared { name: "".into(), bytes, align: 16 })
}

/// An unknown value, which is loaded from `at`.
pub fn unknown(b: &mut Builder, at: Value, ty: Type) -> Built<Value> {
    b.emit_as(Memory::Load { ptr: at, sem: weft_ir::Sem::Weak, scope: weft_ir::Scope::Sys }, ty)
}

/// The scalar type of `s`.
pub fn scalar(s: Scalar) -> Type {
    Type::Scalar(s)
}

pub fn verified(kernels: Vec<Kernel>) -> Verified {
    verify(Module { kernels, files: vec![] }).unwrap_or_else(|e| panic!("{e:?}"))
}

/// Compiles kernels for `sm_90a`.
pub fn compile(kernels: Vec<Kernel>) -> Output {
    compile_for("sm_90a", kernels)
}

pub fn compile_for(name: &str, kernels: Vec<Kernel>) -> Output {
    emit(&verified(kernels), &Options::new(target(name))).unwrap_or_else(|e| panic!("{e}"))
}

/// Compiles one kernel for `sm_90a`. ptxas must accept the PTX, which is returned.
pub fn ptx(name: &str, body: impl FnOnce(&mut Builder, Value) -> Built<()>) -> String {
    let out = compile(vec![kernel(name, body)]);
    accepted(&out.ptx, "sm_90a");
    out.ptx
}

/// The instructions of the PTX that contain `word`, without operands.
pub fn mnemonics(ptx: &str, word: &str) -> Vec<String> {
    ptx.lines()
        .map(str::trim)
        .filter(|line| line.ends_with(';') && line.contains(word))
        .filter_map(|line| line.split_whitespace().find(|w| !w.starts_with('@')))
        .map(|w| w.trim_end_matches(';').to_owned())
        .collect()
}

/// Checks that the PTX contains every one of `lines`.
#[track_caller]
pub fn contains(ptx: &str, lines: &[&str]) {
    for line in lines {
        assert!(ptx.contains(line), "no `{line}` in\n{ptx}");
    }
}

/// Checks that ptxas accepts the PTX.
#[track_caller]
pub fn accepted(ptx: &str, target: &str) {
    assembled(ptx, &["--gpu-name", target]);
}

/// Checks that ptxas makes a relocatable object of the PTX, which can call functions that others
/// define.
#[track_caller]
pub fn accepted_as_object(ptx: &str, target: &str) {
    assembled(ptx, &["--compile-only", "--gpu-name", target]);
}

#[track_caller]
fn assembled(ptx: &str, options: &[&str]) {
    let Some(ptxas) = ptxas() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k.ptx");
    std::fs::write(&file, ptx).unwrap();
    let run = |more: &[&str]| {
        let output = ["--output-file", "/dev/null"];
        Command::new(ptxas).args(options).args(more).args(output).arg(&file).output().unwrap()
    };
    let mut out = run(&[]);
    if out.status.code().is_none() {
        // The optimiser of ptxas 13.5 crashes on a few kernels with random jumps. Without it, ptxas
        // still says whether it accepts the text.
        out = run(&["-O0"]);
    }
    assert!(out.status.success(), "{}\n{ptx}", String::from_utf8_lossy(&out.stderr));
}

/// The path of ptxas, if it is installed.
fn ptxas() -> Option<&'static PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let runs =
            |path: &PathBuf| Command::new(path).arg("--version").output().is_ok_and(|o| o.status.success());
        let given = std::env::var_os("WEFT_PTXAS").map(PathBuf::from);
        let found = given.into_iter().chain(["ptxas".into()]).chain(from_wheels()).find(runs);
        if found.is_none() {
            println!("skipped: ptxas not found (pip install nvidia-cuda-nvcc)");
            assert!(
                std::env::var_os("WEFT_REQUIRE_PTXAS").is_none(),
                "WEFT_REQUIRE_PTXAS is set, and ptxas is not found"
            );
        }
        found
    });
    found.as_ref()
}

fn from_wheels() -> Vec<PathBuf> {
    let script = "import glob, site\nfor d in site.getsitepackages() + [site.getusersitepackages()]:\n    print(*glob.glob(d + '/nvidia/*/bin/ptxas'), sep='\\n')";
    let out = Command::new("python3").args(["-c", script]).output();
    let text = out.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect()
}

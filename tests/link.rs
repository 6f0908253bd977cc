//! Tests of kernels that call NVSHMEM's functions. They are linked with a small library of the same
//! form into PTX, and into cubins with a stored object. Tests that need NVIDIA's tools print a
//! message if they are skipped.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use weft::Nvshmem;
use weft::compile_ir;
use weft::gpu::cache::Found;
use weft::nvshmem::{Library, LinkError, NvshmemError, Object, Objects};
use weft::runtime::find;
use weft::runtime::jitlink::JitLink;
use weft::tools::{self, Tool};
use weft::{Compiled, Options};

const KERNEL: &str = "machine kernel @k block(64, 1, 1) launch {
  launch 0 x: i64 % 1
  launch 1 n: u64 % 1
  launch 2 k: u16 % 1
  param 0 x: i64
  param 1 n: u64
  param 2 k: u16
  %0 = param 0 : i64
  %1 = param 1 : u64
  %2 = param 2 : u16
  %3 = int_to_ptr %0 : ptr<symm>
  %4 = call \"nvshmem_small\", [%3] : i32
  %5 = st %3, %4, weak, sys
  %6 = call \"nvshmemx_large_block\", [%3 %1 %2] : i8
  %7 = st %3, %6, weak, sys
}
";

fn bitcode() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nvshmem_functions_3_4_5.bc")
}

fn library_at(path: PathBuf) -> Library {
    Library::at(find::Found { path, by: "a test".into() }).unwrap()
}

fn compiled(nvshmem: Nvshmem) -> Compiled {
    let mut options = Options::new("sm_90a".parse().unwrap());
    options.nvshmem = nvshmem;
    compile_ir(KERNEL, &options).unwrap_or_else(|e| panic!("{e}"))
}

/// Whether ptxas is installed.
fn assembles() -> bool {
    let found = Tool::Ptxas.find();
    assert!(found.is_ok() || std::env::var_os("WEFT_REQUIRE_PTXAS").is_none(), "WEFT_REQUIRE_PTXAS is set");
    if found.is_err() {
        println!("skipped: ptxas not found (pip install nvidia-cuda-nvcc)");
    }
    found.is_ok()
}

fn has(image: &[u8], text: &str) -> bool {
    image.windows(text.len()).any(|w| w == text.as_bytes())
}

#[track_caller]
fn is_whole(cubin: &[u8]) {
    assert!(cubin.starts_with(b"\x7fELF") && has(cubin, ".text.k"));
    assert!(has(cubin, "nvshmemi_device_state_d"), "the host initialises it");
}

#[test]
fn ptx_has_the_functions_or_declares_them() {
    let linked = compiled(Nvshmem::At(bitcode()));
    assert!(linked.external().is_empty() && linked.caller().is_none());
    assert!(linked.ptx.contains(".func  (.param .b32 func_retval0) nvshmemx_large_block"), "{}", linked.ptx);
    assert!(!linked.ptx.contains(".extern .func  (.param .b32 func_retval0) nvshmem"), "{}", linked.ptx);
    let info = linked.describe().unwrap();
    assert_eq!((info.nvshmem.unwrap().to_string(), info.external.len()), ("3.4.5".into(), 0));

    let external = compiled(Nvshmem::External);
    assert_eq!(external.external(), ["nvshmem_small", "nvshmemx_large_block"]);
    assert!(!external.ptx.contains("nvshmemi_device_state_d"), "{}", external.ptx);
    let info = external.describe().unwrap();
    assert_eq!((info.nvshmem, info.external.len()), (None, 2));
    // The description is stored as text.
    let text = serde_json::to_string(&info).unwrap();
    assert_eq!(serde_json::from_str::<weft::runtime::launch::ModuleInfo>(&text).unwrap(), info);
}

#[test]
fn a_library_is_known_by_its_content() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("libnvshmem_device.bc");
    fs::copy(bitcode(), &path).unwrap();
    let first = library_at(path.clone());
    assert_eq!((first.version.to_string(), first.hash().len()), ("3.4.5".into(), 64));
    assert_eq!(library_at(path.clone()), first);
    assert_eq!(library_at(bitcode()).hash(), first.hash());
    // Another file replaces it.
    fs::copy(bitcode().with_file_name("nvshmem_device_3_4_5.bc"), &path).unwrap();
    assert_ne!(library_at(path.clone()).hash(), first.hash());
    fs::write(&path, b"damaged").unwrap();
    let e = Library::at(find::Found { path, by: String::new() }).unwrap_err();
    assert!(matches!(e, NvshmemError::Bitcode(_)), "{e}");
}

#[test]
fn objects_are_stored_and_replaced_if_they_are_damaged() {
    if !assembles() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let library = library_at(bitcode());
    let compiled = compiled(Nvshmem::External);
    let caller = compiled.caller().unwrap();
    // Another process would open the store again.
    let object = || library.object(&caller, &Objects::at(folder.path())).unwrap();
    let (made, found) = object();
    assert!(found == Found::Made && made.0.starts_with(b"\x7fELF") && has(&made.0, "nvshmemx_large_block"));
    assert_eq!(object(), (made.clone(), Found::Disk));
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    let whole = fs::read(&files[0]).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() - 1], &whole[..20], b""] {
        fs::write(&files[0], damaged).unwrap();
        assert_eq!(object(), (made.clone(), Found::Made));
        assert_eq!(object(), (made.clone(), Found::Disk));
    }
    // Other functions, threads and targets have other objects. The order of functions does not
    // matter.
    let mut other = caller.clone();
    other.functions.reverse();
    assert_eq!(library.object(&other, &Objects::at(folder.path())).unwrap().1, Found::Disk);
    other.functions.pop();
    assert_eq!(library.object(&other, &Objects::at(folder.path())).unwrap().1, Found::Made);
    other = caller.clone();
    other.threads = 1024;
    assert_eq!(library.object(&other, &Objects::at(folder.path())).unwrap().1, Found::Made);
    other.functions = vec!["nvshmem_absent"];
    let e = library.object(&other, &Objects::at(folder.path())).unwrap_err();
    assert!(matches!(&e, LinkError::Function(d) if d.message.contains("NVSHMEM 3.4.5")), "{e}");
}

#[test]
fn objects_in_all_are_bounded() {
    let folder = TempDir::new().unwrap();
    let store = Objects::at(folder.path()).max_bytes(10_000);
    let key = store_key();
    for n in 0..8 {
        store.put(&key.with(&[&n.to_string()]), Object(vec![0; 3_000]));
    }
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert!((1..=3).contains(&files), "{files}");
}

fn store_key() -> weft::gpu::cache::Key {
    let text = "kernel k() block(32) { }";
    let file = weft::KernelFile::parse("k.weft", text).unwrap();
    weft::gpu::cache::Key::of(&file, &Options::new("sm_90a".parse().unwrap()))
}

#[test]
fn kernels_are_joined_with_objects() {
    if !assembles() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let library = library_at(bitcode());
    let compiled = compiled(Nvshmem::External);
    let caller = compiled.caller().unwrap();
    let objects = Objects::at(folder.path());
    if let Err(e) = JitLink::get() {
        assert!(std::env::var_os("WEFT_REQUIRE_NVJITLINK").is_none(), "{e}");
        println!("by nvlink alone: {e}");
    }
    is_whole(&library.join(&caller, &objects).unwrap().cubin);
    let (object, _) = library.object(&caller, &objects).unwrap();
    if Tool::Nvlink.find().is_ok() {
        is_whole(&tools::link_object(caller.ptx, &object.0, caller.target).unwrap().cubin);
    }
}

/// A folder in which `weft compile` runs on the kernel.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Scratch {
        let place = Scratch(TempDir::new().unwrap());
        fs::write(place.0.path().join("k.ir"), KERNEL).unwrap();
        place
    }

    fn compile(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(["compile", "k.ir"]).args(arguments).current_dir(self.0.path());
        command.env("WEFT_CACHE", self.0.path().join("cache")).envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        self.compile(arguments, variables).output().unwrap()
    }
}

#[test]
fn the_command_links_the_called_functions() {
    let place = Scratch::new();
    let bitcode = bitcode();
    let bitcode = bitcode.to_str().unwrap();
    let out = place.run(&["--nvshmem", bitcode], &[]);
    assert!(out.status.success() && has(&out.stdout, ".visible .const"), "{out:?}");
    let out = place.run(&["--nvshmem", "extern"], &[]);
    assert!(
        out.status.success() && has(&out.stdout, ".extern .func") && !has(&out.stdout, ".const"),
        "{out:?}"
    );
    let out = place.run(&["--nvshmem", bitcode, "--emit", "meta"], &[]);
    assert!(has(&out.stdout, "\"nvshmem\": \"3.4.5\""), "{out:?}");
    // The folder is an installation.
    let lib = place.0.path().join("nvshmem/lib");
    fs::create_dir_all(&lib).unwrap();
    fs::copy(bitcode, lib.join("libnvshmem_device.bc")).unwrap();
    assert!(has(&place.run(&["--nvshmem", "nvshmem"], &[]).stdout, ".visible .const"));
    assert!(has(&place.run(&[], &[("NVSHMEM_HOME", "nvshmem")]).stdout, ".visible .const"));
    for bad in [&["--nvshmem", "nowhere"][..], &["--nvshmem", "cache"]] {
        let out = place.run(bad, &[]);
        assert!(!out.status.success() && has(&out.stderr, "libnvshmem_device"), "{out:?}");
    }
    let out = place.run(&[], &[("NVSHMEM_HOME", "nowhere")]);
    assert!(!out.status.success() && has(&out.stderr, "NVSHMEM_HOME"), "{out:?}");
}

#[test]
fn without_the_linker_as_a_library_its_command_links() {
    if !assembles() || Tool::Nvlink.find().is_err() {
        return;
    }
    let place = Scratch::new();
    let bitcode = bitcode();
    let arguments = ["--nvshmem", bitcode.to_str().unwrap(), "--emit", "cubin"];
    let out = place.run(&arguments, &[("WEFT_NVJITLINK", "nowhere")]);
    assert!(out.status.success(), "{out:?}");
    is_whole(&out.stdout);
    // This fails too, and the error names the wrong variable.
    let out = place.run(&arguments, &[("WEFT_NVJITLINK", "nowhere"), ("WEFT_NVLINK", "nowhere")]);
    assert!(!out.status.success() && has(&out.stderr, "WEFT_NV"), "{out:?}");
}

#[test]
fn processes_make_one_object_at_once() {
    if !assembles() {
        return;
    }
    let place = Scratch::new();
    let bitcode = bitcode();
    let arguments = ["--nvshmem", bitcode.to_str().unwrap(), "--emit", "cubin"];
    let started: Vec<_> = (0..6).map(|_| place.compile(&arguments, &[]).spawn().unwrap()).collect();
    let cubins: Vec<_> = started.into_iter().map(|p| p.wait_with_output().unwrap()).collect();
    for out in &cubins {
        assert!(out.status.success(), "{out:?}");
        is_whole(&out.stdout);
        assert_eq!(out.stdout.len(), cubins[0].stdout.len());
    }
    let names: Vec<_> = fs::read_dir(place.0.path().join("cache"))
        .unwrap()
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    let of = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    assert_eq!((of(".object"), of(".library"), names.len()), (1, 1, 2), "{names:?}");
}

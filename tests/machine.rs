//! Tests of `weft doctor` and `weft setup` on made-up machines, with made-up NVSHMEM libraries and
//! a made-up pip.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use weft_runtime::error::NVSHMEM_VERSION;
use weft_runtime::nvshmem::version::{Version, host_version};

/// Bitcode with the variable from which the version is read, as LLVM 22 wrote it.
const DEVICE_3_4_5: &[u8] = include_bytes!("data/nvshmem_device_3_4_5.bc");

/// The python3 of these machines. Its pip unpacks a few files of NVIDIA's wheels, logs its calls,
/// and fails if a file says so.
const PYTHON: &str = r#"#!/bin/sh
PATH=/usr/bin:/bin
[ "$1 $2 $3" = "-I -m pip" ] || exit 1
[ "$4" = --version ] && exit 0
root=$(dirname "$0")
case "$*" in *" --require-hashes "*" -r /dev/stdin") ;; *) exit 4 ;; esac
while [ $# -gt 1 ]; do [ "$1" = --target ] && target=$2; shift; done
read -r wanted hashes
case $hashes in --hash=sha256:*) ;; *) exit 5 ;; esac
echo "$wanted" >> "$root/calls"
version=${wanted##*==}
package=$(echo "${wanted%%=*}" | tr - _)
mkdir -p "$target/$package-$version.dist-info" "$target/nvidia/cu13/bin"
[ -e "$root/fails" ] && exit 3
for tool in ptxas nvdisasm; do
    printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.88"\n' > "$target/nvidia/cu13/bin/$tool"
    chmod +x "$target/nvidia/cu13/bin/$tool"
done
"#;

/// A home folder that contains only the files of a test.
struct Home(TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(TempDir::new().unwrap());
        fs::create_dir(home.path("bin")).unwrap();
        home
    }

    fn with_python() -> Home {
        let home = Home::new();
        home.program("python3", PYTHON);
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Creates a folder with a host library of that version, and with device bitcode.
    fn nvshmem(&self, version: &str, device: Option<&[u8]>) -> PathBuf {
        let lib = self.path("nvshmem/lib");
        fs::create_dir_all(&lib).unwrap();
        host_library(&lib.join("libnvshmem_host.so.3"), version);
        if let Some(bytes) = device {
            fs::write(lib.join("libnvshmem_device.bc"), bytes).unwrap();
        }
        self.path("nvshmem")
    }

    /// The output of the command in this home, with additional variables.
    fn weft(&self, arguments: &[&str], vars: &[(&str, &Path)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        let unset =
            ["VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "NVSHMEM_HOME"];
        let own = ["WEFT_NVSHMEM", "WEFT_PTXAS", "WEFT_NVDISASM"];
        unset.iter().chain(&own).for_each(|var| {
            command.env_remove(var);
        });
        command.env("HOME", self.0.path()).env("XDG_CACHE_HOME", self.path("cache"));
        command.env("XDG_DATA_HOME", self.path("data")).env_remove("WEFT_TUNING");
        command.env("PATH", self.path("bin")).envs(vars.iter().copied()).current_dir(self.0.path());
        command.args(arguments).output().unwrap()
    }

    /// The findings of the doctor, by part, and whether it reports that everything works. Its exit
    /// status must agree.
    fn doctor(&self, vars: &[(&str, &Path)]) -> (bool, Value) {
        let out = self.weft(&["doctor", "--json"], vars);
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        let works = report["works"].as_bool().unwrap();
        assert_eq!(out.status.code(), Some(if works { 0 } else { 1 }), "{report:#}");
        let findings = report["findings"].as_array().unwrap().iter();
        let by_part = findings.map(|f| (f["part"].as_str().unwrap().to_owned(), f.clone()));
        (works, by_part.collect::<serde_json::Map<_, _>>().into())
    }

    /// The requests to pip since the last call.
    fn pip_calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("bin/calls")).unwrap_or_default();
        let _ = fs::remove_file(self.path("bin/calls"));
        calls.lines().map(str::to_owned).collect()
    }

    /// The folders of `weft setup`.
    fn wheels(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache/warpweft/wheels")).into_iter().flatten();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != ".lock");
        names.sort();
        names
    }
}

/// Creates a library that reports its NVSHMEM version, and has no other function.
fn host_library(path: &Path, version: &str) {
    let numbers: Vec<_> = version.split('.').collect();
    let source = path.with_extension("rs");
    let text = format!(
        "#[unsafe(no_mangle)]
        unsafe extern \"C\" fn nvshmemx_vendor_get_version_info(a: *mut i32, b: *mut i32, c: *mut i32) {{
            unsafe {{ (*a, *b, *c) = ({}) }}
        }}",
        numbers.join(", ")
    );
    library(path, &source, &text);
}

fn library(path: &Path, source: &Path, text: &str) {
    fs::write(source, text).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let flags =
        ["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "made", "-C", "panic=abort", "-o"];
    let out = Command::new(rustc).args(flags).args([path, source]).output().unwrap();
    assert!(out.status.success(), "{}", said(&out.stderr));
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_host_library_is_asked_for_its_version() {
    let home = Home::new();
    for version in ["3.2.0", "3.4.5", "3.9.0"] {
        let path = home.path(version);
        host_library(&path, version);
        assert_eq!(host_version(&path), Ok(version.parse::<Version>().unwrap()));
    }
    let other = home.path("other");
    library(&other, &home.path("other.rs"), "");
    let text = home.path("text");
    fs::write(&text, "no library").unwrap();
    let negative = home.path("negative");
    host_library(&negative, "-3.4.5");
    for path in [other, text, negative, home.path("nothing")] {
        let e = host_version(&path).unwrap_err();
        assert_eq!(e.code, NVSHMEM_VERSION);
        assert!(e.message.contains(path.to_str().unwrap()), "{e}");
    }
}

#[test]
fn a_bare_machine_works_and_missing_parts_are_named() {
    let home = Home::new();
    let (works, parts) = home.doctor(&[]);
    assert!(works);
    assert_eq!(parts["LLVM"]["state"], "ok");
    for part in ["ptxas", "nvdisasm", "nvJitLink", "NVSHMEM host"] {
        // Some machines have it in a place that no variable hides.
        if parts[part]["path"].is_null() {
            assert_eq!(parts[part]["state"], "note", "{parts:#}");
            assert!(parts[part]["todo"].as_str().unwrap().contains("weft setup"), "{parts:#}");
        }
    }
    let cache = home.path("cache/warpweft");
    assert_eq!(parts["cache"]["path"].as_str(), cache.to_str());

    // WEFT_CACHE replaces the folder, and a path that cannot be a folder is reported.
    let plain = home.path("plain");
    fs::write(&plain, "").unwrap();
    for (named, found) in [(plain.as_path(), "is not a folder"), (Path::new("off"), "disabled by WEFT_CACHE")]
    {
        let (_, parts) = home.doctor(&[("WEFT_CACHE", named)]);
        assert_eq!(parts["cache"]["state"], "note", "{parts:#}");
        assert!(parts["cache"]["found"].as_str().unwrap().contains(found), "{parts:#}");
    }
    let text = said(&home.weft(&["doctor"], &[]).stdout);
    assert!(text.contains("\nok      LLVM  ") && text.contains("The compiler"), "{text}");
}

#[test]
fn tuning_tables_are_reported() {
    let home = Home::new();
    let file = home.path("data/warpweft/tuning.json");
    let (works, parts) = home.doctor(&[]);
    assert!(works && parts["tuning"]["state"] == "note", "{parts:#}");
    assert_eq!(parts["tuning"]["path"].as_str(), file.to_str());
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "{ \"form\": 1, \"tables\": [] ").unwrap();
    let (works, parts) = home.doctor(&[]);
    assert!(!works && parts["tuning"]["state"] == "broken", "{parts:#}");
    assert!(parts["tuning"]["found"].as_str().unwrap().contains("is damaged"), "{parts:#}");
    let (works, parts) = home.doctor(&[("WEFT_TUNING", Path::new("off"))]);
    assert!(
        works && parts["tuning"]["found"].as_str().unwrap().contains("disabled by WEFT_TUNING"),
        "{parts:#}"
    );
}

#[test]
fn halves_of_one_version_go_together() {
    let home = Home::new();
    let root = home.nvshmem("3.4.5", Some(DEVICE_3_4_5));
    for named in [root.clone(), root.join("lib"), root.join("lib/libnvshmem_host.so.3")] {
        let (works, parts) = home.doctor(&[("WEFT_NVSHMEM", &named)]);
        assert!(works, "{parts:#}");
        for part in ["NVSHMEM host", "NVSHMEM device"] {
            assert_eq!(parts[part]["state"], "ok", "{parts:#}");
            assert_eq!(parts[part]["found"], "3.4.5, from WEFT_NVSHMEM");
        }
    }
}

#[test]
fn halves_of_two_versions_are_rejected_with_both_named() {
    let home = Home::new();
    let root = home.nvshmem("3.8.0", Some(DEVICE_3_4_5));
    let (works, parts) = home.doctor(&[("NVSHMEM_HOME", &root)]);
    assert!(!works);
    let finding = &parts["NVSHMEM device"];
    assert_eq!(finding["state"], "broken");
    let found = finding["found"].as_str().unwrap();
    assert!(found.contains("3.8.0") && found.contains("3.4.5"), "{found}");
    let details = finding["details"].to_string();
    assert!(
        details.contains("libnvshmem_host.so.3") && details.contains("libnvshmem_device.bc"),
        "{details}"
    );
    let text = said(&home.weft(&["doctor"], &[("NVSHMEM_HOME", &root)]).stdout);
    assert!(text.contains("BROKEN  NVSHMEM device") && text.contains("Something is broken"), "{text}");
}

#[test]
fn unsupported_versions_are_rejected() {
    for version in ["3.2.0", "3.9.0"] {
        let home = Home::new();
        let root = home.nvshmem(version, Some(DEVICE_3_4_5));
        let (works, parts) = home.doctor(&[("NVSHMEM_HOME", &root)]);
        let found = parts["NVSHMEM host"]["found"].as_str().unwrap();
        assert!(!works && found.contains(version) && found.contains("3.3 to 3.8"), "{found}");
    }
}

#[test]
fn a_broken_or_missing_half_is_reported() {
    let home = Home::new();
    let broken = home.nvshmem("3.4.5", Some(&DEVICE_3_4_5[..1000]));
    let (works, parts) = home.doctor(&[("NVSHMEM_HOME", &broken)]);
    let found = parts["NVSHMEM device"]["found"].as_str().unwrap();
    assert!(!works && found.contains("E0608") && found.contains("libnvshmem_device.bc"), "{found}");

    let nothing = home.path("nothing");
    let (works, parts) = home.doctor(&[("NVSHMEM_HOME", &nothing)]);
    let found = parts["NVSHMEM host"]["found"].as_str().unwrap();
    assert!(!works && found.contains("NVSHMEM_HOME is set to") && found.contains("nothing"), "{found}");
}

/// Checks that without NVSHMEM a kernel that calls its functions compiles to the output of
/// `--nvshmem extern`, with a note.
#[test]
fn without_nvshmem_its_functions_stay_external() {
    let home = Home::new();
    if home.doctor(&[]).1["NVSHMEM device"]["state"] == "ok" {
        println!("skipped: this machine has NVSHMEM in a system folder");
        return;
    }
    let text =
        "kernel k(x: symm<f32, (67):(1)>, y: symm<f32, (67):(1)>) block(32) { put<block>(y, x, my_pe()); }";
    fs::write(home.path("k.weft"), text).unwrap();
    for emit in ["ptx", "llvm", "meta"] {
        let compile = |more: &[&str], vars: &[(&str, &Path)]| {
            home.weft(&[&["compile", "k.weft", "--emit", emit], more].concat(), vars)
        };
        let (left, asked) = (compile(&[], &[]), compile(&["--nvshmem", "extern"], &[]));
        assert!(left.status.success() && asked.status.success(), "{left:?} {asked:?}");
        assert!(said(&left.stdout).contains("nvshmemx_putmem_block") && left.stdout == asked.stdout);
        let note = said(&left.stderr);
        assert!(
            note.starts_with("note: NVSHMEM") && note.contains("external: nvshmemx_putmem_block\n"),
            "{note}"
        );
        assert!(note.contains("weft setup") && note.contains("--nvshmem extern"), "{note}");
        assert_eq!(said(&asked.stderr), "");
        // A variable that does not name an installation is an error, and not a machine without
        // NVSHMEM.
        let wrong = compile(&[], &[("NVSHMEM_HOME", Path::new("nowhere"))]);
        assert!(!wrong.status.success() && said(&wrong.stderr).contains("NVSHMEM_HOME"), "{wrong:?}");
    }
    // A kernel without NVSHMEM's functions gives no note.
    let alone = home.weft(&["compile", "k.weft", "--transport", "p2p"], &[]);
    assert!(alone.status.success() && alone.stderr.is_empty(), "{alone:?}");
    let alone = home.weft(&["compile", "k.weft", "--emit", "ir"], &[]);
    assert!(alone.status.success() && alone.stderr.is_empty(), "{alone:?}");
}

#[test]
fn a_tool_that_does_not_run_is_broken() {
    let home = Home::new();
    home.program("ptxas", "#!/bin/sh\nexit 1\n");
    let (works, parts) = home.doctor(&[]);
    assert!(!works && parts["ptxas"]["state"] == "broken", "{parts:#}");
}

#[test]
fn setup_downloads_missing_parts_once() {
    let home = Home::with_python();
    let with_cuda = |cuda: &str, arguments: &[&str]| {
        let out = home.weft(&[&["setup", "--cuda", cuda], arguments].concat(), &[]);
        assert!(out.status.success(), "{}", said(&out.stderr));
        said(&out.stdout)
    };
    let setup = |arguments: &[&str]| with_cuda("13", arguments);
    const TOOLS: [&str; 3] =
        ["nvidia-cuda-nvcc==13.5.37", "nvidia-cuda-nvdisasm==13.5.37", "nvidia-nvjitlink==13.5.37"];
    setup(&[]);
    assert_eq!(home.pip_calls(), ["nvidia-nvshmem-cu13==3.8.0", TOOLS[0], TOOLS[1], TOOLS[2]]);
    assert_eq!(home.wheels(), ["nvdisasm", "nvjitlink", "nvshmem", "ptxas"]);

    // The second time there is nothing to do. The commands find the downloaded files.
    assert_eq!(setup(&[]).matches("there already").count(), 4);
    assert_eq!(setup(&["--nvshmem", "3.8"]).matches("there already").count(), 4);
    assert!(home.pip_calls().is_empty());
    let (_, parts) = home.doctor(&[]);
    assert_eq!(parts["ptxas"]["found"], "13.0.88, from `weft setup`");

    // A wheel that pip has not checked, from an earlier version of weft, is downloaded again.
    fs::remove_file(home.path("cache/warpweft/wheels/ptxas/.requirement")).unwrap();
    setup(&[]);
    assert_eq!(home.pip_calls(), [TOOLS[0]]);

    // NCCL is large and used only for benchmarks.
    assert!(setup(&["--nccl"]).contains("nvidia-nccl-cu13"));
    assert_eq!(home.pip_calls(), ["nvidia-nccl-cu13==2.28.9"]);
    fs::remove_dir_all(home.path("cache/warpweft/wheels/nccl")).unwrap();
    // So is cuBLAS, whose wheel has its CUDA version in its own version.
    assert!(setup(&["--cublas"]).contains("nvidia-cublas 13."));
    assert_eq!(home.pip_calls(), ["nvidia-cublas==13.10.0.20"]);
    fs::remove_dir_all(home.path("cache/warpweft/wheels/cublas")).unwrap();

    // Another version replaces it, and --force downloads everything again.
    let said = setup(&["--nvshmem", "3.4.5"]);
    assert!(said.contains("nvidia-nvshmem-cu13 3.4.5: fetched"), "{said}");
    assert_eq!(home.pip_calls(), ["nvidia-nvshmem-cu13==3.4.5"]);
    let folder = home.path("cache/warpweft/wheels/nvshmem");
    assert!(folder.join("nvidia_nvshmem_cu13-3.4.5.dist-info").is_dir());
    assert!(!folder.join("nvidia_nvshmem_cu13-3.8.0.dist-info").exists());
    with_cuda("12", &["--force"]);
    assert_eq!(home.pip_calls(), ["nvidia-nvshmem-cu12==3.8.0", TOOLS[0], TOOLS[1], TOOLS[2]]);
    assert_eq!(home.wheels(), ["nvdisasm", "nvjitlink", "nvshmem", "ptxas"]);
}

#[test]
fn a_failed_setup_keeps_the_old_files() {
    let home = Home::with_python();
    assert!(home.weft(&["setup"], &[]).status.success());
    // An earlier download was interrupted, and this pip fails half way.
    fs::create_dir_all(home.path("cache/warpweft/wheels/.new-nvshmem/half")).unwrap();
    fs::write(home.path("bin/fails"), "").unwrap();
    let out = home.weft(&["setup", "--nvshmem", "3.4.5"], &[]);
    let text = said(&out.stderr);
    assert!(out.status.code() == Some(1) && text.contains("pip failed"), "{text}");
    assert_eq!(home.wheels(), ["nvdisasm", "nvjitlink", "nvshmem", "ptxas"]);
    assert!(home.path("cache/warpweft/wheels/nvshmem/nvidia_nvshmem_cu13-3.8.0.dist-info").is_dir());
}

#[test]
fn setup_reports_the_cause_of_a_failure() {
    let home = Home::new();
    let rejects = |home: &Home, arguments: &[&str], why: &[&str]| {
        let out = home.weft(arguments, &[]);
        let text = said(&out.stderr);
        assert!(!out.status.success() && why.iter().all(|part| text.contains(part)), "{text}");
        assert!(home.wheels().is_empty(), "{:?}", home.wheels());
    };
    rejects(&home, &["setup"], &["no pip here", "python3 -I -m pip", "NVSHMEM_HOME"]);
    let home = Home::with_python();
    rejects(&home, &["setup", "--nvshmem", "3.9.1"], &["3.9.1", "3.3 to 3.8"]);
    rejects(&home, &["setup", "--nvshmem", "3.4.99"], &["knows the hashes of 3.8.0, 3.7.2", "NVSHMEM_HOME"]);
    rejects(&home, &["setup", "--nvshmem", "new"], &["`new` is not a version"]);
    rejects(&home, &["setup", "--cuda", "11"], &["--cuda"]);
    let folder = home.path("cache/warpweft/wheels");
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::File::create(folder.join(".lock")).unwrap();
    lock.lock().unwrap();
    rejects(&home, &["setup"], &["another `weft setup` is running"]);
}

#[test]
fn a_dry_run_prints_valid_shell_commands() {
    let home = Home::with_python();
    let out = home.weft(&["setup", "--dry-run", "--cuda", "13"], &[]);
    let text = said(&out.stdout);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    let python = home.path("bin/python3");
    let pip = format!("' | {} -I -m pip --isolated install --require-hashes", python.display());
    assert!(lines[0].starts_with("echo 'nvidia-nvshmem-cu13==3.8.0 --hash=sha256:"), "{text}");
    assert!(lines[0].contains(&pip) && lines[0].ends_with(" -r /dev/stdin"), "{text}");
    assert!(home.pip_calls().is_empty() && !home.path("cache").exists());
}

#[test]
fn codes_of_every_room_are_explained() {
    let home = Home::new();
    for (name, begins) in [
        ("R0203", "R0203: another PE ended"),
        ("r0105", "R0105: an NVSHMEM that is not supported"),
        ("e0212", "E0212: "),
        ("E608", "E0608: the device library"),
    ] {
        let out = home.weft(&["explain", name], &[]);
        assert!(said(&out.stdout).starts_with(begins), "{name}: {}", said(&out.stdout));
    }
    let out = home.weft(&["explain", "R9999"], &[]);
    assert!(!out.status.success() && said(&out.stderr).contains("R9999 is not an error code"));
}

/// A folder with a libcuda that is not a driver.
fn no_driver(home: &Home) -> PathBuf {
    let folder = home.path("fake");
    fs::create_dir(&folder).unwrap();
    let text = "#[unsafe(no_mangle)] extern \"C\" fn cuInit(_: u32) -> i32 { 0 }";
    library(&folder.join("libcuda.so"), &home.path("cuda.rs"), text);
    folder
}

const KERNEL: &str = "kernel k(x: symm<f32, (64):(1)>) block(64) { x[thread_idx()] = 1.0; }";

#[test]
fn a_libcuda_without_the_drivers_functions_is_an_error() {
    let home = Home::new();
    let fake = no_driver(&home);
    let (works, parts) = home.doctor(&[("LD_LIBRARY_PATH", &fake)]);
    assert!(!works);
    assert_eq!(parts["CUDA driver"]["state"], "broken");
    fs::write(home.path("k.weft"), KERNEL).unwrap();
    let out = home.weft(&["run", "k.weft", "--on", "gpu"], &[("LD_LIBRARY_PATH", &fake)]);
    let text = said(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("error[R0101]") && text.contains("lacks"), "{text}");
}

#[test]
fn processes_of_a_launcher_do_not_simulate_unless_asked_to() {
    let home = Home::new();
    let fake = no_driver(&home);
    fs::write(home.path("k.weft"), KERNEL).unwrap();
    let run = |rank: &str, on: &str| {
        let here = [("WORLD_SIZE", Path::new("2")), ("MASTER_ADDR", Path::new("127.0.0.1"))];
        let vars = [("LD_LIBRARY_PATH", &*fake), ("RANK", Path::new(rank)), here[0], here[1]];
        let out = home.weft(&["run", "k.weft", "--pes", "2", "--on", on], &vars);
        (out.status.code(), said(&out.stdout) + &said(&out.stderr))
    };
    let (status, text) = run("0", "auto");
    assert!(status == Some(1) && text.contains("error[R0101]") && text.contains("--on sim"), "{text}");
    let (status, text) = run("2", "auto");
    assert!(status == Some(1) && text.contains("error[R0201]") && text.contains("RANK"), "{text}");
    let (status, text) = run("0", "sim");
    assert!(status == Some(0) && text.contains("simulator, 2 PEs"), "{text}");
}

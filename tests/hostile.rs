//! Tests of `weft` among files of other people: in a repository with traps, and with a cache folder
//! of another user.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/within_limit.rs"]
mod limit;

use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use tempfile::TempDir;
use weft::{KernelFile, Options};

fn main() -> ExitCode {
    let tests: [(&str, fn()); 9] = [
        ("a_repositorys_python_modules_are_not_imported", a_repositorys_python_modules_are_not_imported),
        ("an_answer_that_an_earlier_version_has_kept_does_not_count", an_earlier_answer_does_not_count),
        ("a_relative_folder_of_path_has_no_programs", a_relative_folder_of_path_has_no_programs),
        ("a_cache_that_others_may_write_is_not_used", a_cache_that_others_may_write_is_not_used),
        ("use_reads_kernel_files_of_the_folder_alone", use_reads_kernel_files_of_the_folder_alone),
        ("pipes_and_devices_do_not_block", pipes_and_devices_do_not_block),
        ("control_characters_do_not_reach_the_terminal", control_characters_do_not_reach_the_terminal),
        ("an_endless_loop_ends", an_endless_loop_ends),
        ("a_long_chain_of_quotients_compiles", a_long_chain_of_quotients_compiles),
    ];
    let trial = |(name, test): (&str, fn())| Trial::test(name, move || run(test));
    let mut trials: Vec<_> = tests.map(trial).into();
    // These tests need files of another user.
    let root = is_root();
    let foreign: [(&str, fn()); 1] =
        [("a_cache_of_another_user_is_not_used", a_cache_of_another_user_is_not_used)];
    for (name, test) in foreign {
        let name =
            if root { name.to_owned() } else { format!("{name} (ignored: only root can act as two users)") };
        trials.push(Trial::test(name, move || run(test)).with_ignored_flag(!root));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn run(test: fn()) -> Result<(), Failed> {
    test();
    Ok(())
}

/// Whether the tests run as root.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}

const KERNEL: &str = "kernel k(x: symm<f32, (64):(1)>) block(64) { x[thread_idx()] = 1.0; }";

/// A program that leaves a mark and pretends to be ptxas.
const PTXAS: &str = "#!/bin/sh\n/bin/touch MARK\necho 'release 13.0, V13.0.88'\n";

/// A repository of another user that contains a kernel, the user's cache, and the file that its
/// code would create.
struct Trap {
    root: TempDir,
}

impl Trap {
    fn new() -> Trap {
        let trap = Trap { root: TempDir::new().unwrap() };
        fs::create_dir_all(trap.path("repository")).unwrap();
        fs::write(trap.path("repository/k.weft"), KERNEL).unwrap();
        trap
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn program(&self, path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, PTXAS.replace("MARK", &self.path("mark").display().to_string())).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs `weft` in the repository.
    fn weft(&self, arguments: &[&str], vars: &[(&str, &Path)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        for var in ["WEFT_PTXAS", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "WEFT_CACHE"] {
            command.env_remove(var);
        }
        command.env("XDG_CACHE_HOME", self.path("cache")).env("HOME", self.path("home"));
        command.envs(vars.iter().copied()).args(arguments);
        command.current_dir(self.path("repository")).output().unwrap()
    }

    /// Whether code of the repository, or of a planted cache, has run.
    fn sprung(&self) -> bool {
        self.path("mark").exists()
    }
}

/// The whole output of a command.
fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

fn a_repositorys_python_modules_are_not_imported() {
    let trap = Trap::new();
    let code = format!("open({:?}, 'w').write('ran')\n", trap.path("mark").display().to_string());
    for module in
        ["sysconfig", "site", "pip", "json", "queue", "threading", "importlib", "torch", "sitecustomize"]
    {
        fs::write(trap.path("repository").join(format!("{module}.py")), &code).unwrap();
    }
    let inherited = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let mut empty_entry = std::ffi::OsString::from(":");
    empty_entry.push(inherited);
    let all: [&[&str]; 5] = [
        &["doctor"],
        &["compile", "k.weft", "--emit", "cubin", "-o", "/dev/null"],
        &["setup", "--dry-run"],
        &["bench", "allreduce", "--against", "torch", "--pes", "2", "--on", "gpu"],
        &["run", "k.weft", "--pes", "2"],
    ];
    for arguments in all {
        let out = trap.weft(arguments, &[]);
        assert!(!trap.sprung(), "{arguments:?} ran code of the repository: {}", said(&out));
        // An empty entry stands for the current folder.
        let out = trap.weft(arguments, &[("PYTHONPATH", Path::new(&empty_entry))]);
        assert!(!trap.sprung(), "{arguments:?} ran code of the repository: {}", said(&out));
    }
}

fn an_earlier_answer_does_not_count() {
    let trap = Trap::new();
    trap.program(&trap.path("planted/nvidia/cu13/bin/ptxas"));
    // A run stores Python's answer. It is replaced by one in the earlier format, under the same
    // name.
    trap.weft(&["doctor"], &[]);
    let answers = trap.path("cache/warpweft/python");
    for file in fs::read_dir(&answers).into_iter().flatten().flatten() {
        fs::write(file.path(), format!("{}\n", trap.path("planted").display())).unwrap();
    }
    let out = trap.weft(&["compile", "k.weft", "--emit", "cubin", "-o", "/dev/null"], &[]);
    assert!(!trap.sprung(), "{}", said(&out));
}

fn a_relative_folder_of_path_has_no_programs() {
    let trap = Trap::new();
    for program in ["ptxas", "python3", "ldconfig", "mpirun", "nvdisasm"] {
        trap.program(&trap.path("repository").join(program));
    }
    let path = PathBuf::from(format!(".:../repository:{}", std::env::var("PATH").unwrap()));
    for arguments in [&["doctor"][..], &["compile", "k.weft", "--emit", "cubin", "-o", "/dev/null"]] {
        let out = trap.weft(arguments, &[("PATH", &path), ("LD_LIBRARY_PATH", Path::new("."))]);
        assert!(!trap.sprung(), "{arguments:?}: {}", said(&out));
    }
}

fn a_cache_that_others_may_write_is_not_used() {
    let trap = Trap::new();
    let ptxas = trap.path("cache/warpweft/wheels/a/nvidia/cu13/bin/ptxas");
    trap.program(&ptxas);
    let compile = ["compile", "k.weft", "--emit", "cubin", "-o", "/dev/null"];
    // These are the folders on the path, and the file itself.
    let on_the_way: Vec<_> = ptxas.ancestors().take_while(|path| !path.ends_with("cache")).collect();
    for open in on_the_way {
        let before = fs::metadata(open).unwrap().permissions();
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
        let out = trap.weft(&compile, &[]);
        assert!(!trap.sprung(), "{}: {}", open.display(), said(&out));
        assert!(said(&out).contains("other users can write"), "{}: {}", open.display(), said(&out));
        fs::set_permissions(open, before).unwrap();
    }
    // If no folder is writable by others, the program is accepted as the user's own.
    trap.weft(&compile, &[]);
    assert!(trap.sprung());
}

fn a_cache_of_another_user_is_not_used() {
    let trap = Trap::new();
    let ours = trap.path("cache/warpweft");
    let ptxas = ours.join("wheels/a/nvidia/cu13/bin/ptxas");
    trap.program(&ptxas);
    let foreign = Command::new("chown").args(["-R", "65534:65534"]).arg(&ours).status();
    assert!(foreign.unwrap().success());
    for arguments in [&["doctor"][..], &["compile", "k.weft", "--emit", "cubin", "-o", "/dev/null"]] {
        let out = trap.weft(arguments, &[]);
        assert!(!trap.sprung(), "{arguments:?}: {}", said(&out));
        assert!(said(&out).contains("belongs to user 65534"), "{arguments:?}: {}", said(&out));
    }
}

fn use_reads_kernel_files_of_the_folder_alone() {
    let trap = Trap::new();
    let secret = "token-0123456789";
    for file in ["secret.txt", "secret.weft", "repository/notes.txt"] {
        fs::write(trap.path(file), format!("{secret}\n")).unwrap();
    }
    symlink(trap.path("secret.txt"), trap.path("repository/link.weft")).unwrap();
    symlink(trap.path("secret.weft"), trap.path("repository/other.weft")).unwrap();
    let absolute = trap.path("secret.txt").display().to_string();
    for used in
        ["../secret.txt", "../secret.weft", "notes.txt", "link.weft", "other.weft", "/etc/shadow", &absolute]
    {
        fs::write(trap.path("repository/k.weft"), format!("use {used:?};\n{KERNEL}\n")).unwrap();
        let out = trap.weft(&["compile", "k.weft", "-o", "/dev/null"], &[]);
        let text = said(&out);
        assert!(!out.status.success() && !text.contains(secret) && !text.contains("root:"), "{used}: {text}");
    }
    // Files of the folder can be used, and a wider folder can be named.
    fs::write(trap.path("part.weft"), "fn one() { return 1.0; }\n").unwrap();
    fs::write(trap.path("repository/k.weft"), format!("use \"../part.weft\";\n{KERNEL}\n")).unwrap();
    let refused = trap.weft(&["compile", "k.weft", "-o", "/dev/null"], &[]);
    assert!(!refused.status.success() && said(&refused).contains("--root"), "{}", said(&refused));
    let out = trap.weft(&["compile", "k.weft", "--root", "..", "-o", "/dev/null"], &[]);
    assert!(out.status.success(), "{}", said(&out));
}

fn pipes_and_devices_do_not_block() {
    let trap = Trap::new();
    let pipe = |name: &str| {
        let made = Command::new("mkfifo").arg(trap.path("repository").join(name)).status();
        assert!(made.unwrap().success());
    };
    for name in ["pipe.weft", "pipe.ptx", "pipe.npy", "pipe.json", "pipe.ir"] {
        pipe(name);
    }
    fs::write(trap.path("repository/k.weft"), format!("use \"pipe.weft\";\n{KERNEL}\n")).unwrap();
    fs::write(trap.path("repository/l.weft"), KERNEL).unwrap();
    let all: [&[&str]; 8] = [
        &["compile", "k.weft"],
        &["compile", "pipe.weft"],
        &["compile", "pipe.ir"],
        &["compile", "/dev/zero"],
        &["sim", "pipe.ptx"],
        &["run", "l.weft", "--pes", "2", "--on", "sim", "--input", "x=pipe.npy"],
        &["run", "l.weft", "--pes", "2", "--on", "sim", "--input", "x=/dev/zero"],
        &["bench", "allreduce", "--from", "pipe.json"],
    ];
    for arguments in all {
        let out = trap.weft(arguments, &[]);
        assert!(
            !out.status.success() && said(&out).contains("regular file"),
            "{arguments:?}: {}",
            said(&out)
        );
    }
}

/// Checks a kernel that prints a title for the terminal's window, a file with such a name, and one
/// with such a header.
fn control_characters_do_not_reach_the_terminal() {
    let trap = Trap::new();
    let title = "\x1b]0;title\x07";
    let here = |name: &str| trap.path("repository").join(name);
    let kernel = format!(
        "kernel k(x: symm<f32, (4):(1)>) block(4) {{ if thread_idx() == 0 {{ print(\"{title}\\n\"); }} }}"
    );
    fs::write(here("prints.weft"), &kernel).unwrap();
    let named = format!("{title}.weft");
    fs::write(here(&named), "kernel k( {").unwrap();
    let header = format!("{{'descr': '{title}', 'fortran_order': False, 'shape': (4,), }}\n");
    let mut npy = b"\x93NUMPY\x01\x00".to_vec();
    npy.extend((header.len() as u16).to_le_bytes());
    npy.extend(header.as_bytes());
    fs::write(here("x.npy"), npy).unwrap();
    let races = ".visible .entry k(.param .u64 p) { .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd1, [p];\n\
                 mov.u32 %r1, %tid.x;\n.loc 1 3 1\nst.global.u32 [%rd1], %r1; ret; }\n";
    let head = ".version 8.6\n.target sm_90a\n.address_size 64\n";
    fs::write(here("k.ptx"), format!("{head}.file 1 \"{title}\"\n{races}")).unwrap();
    let all: [&[&str]; 6] = [
        &["run", "prints.weft", "--pes", "1", "--on", "sim"],
        &["compile", &named],
        &["compile", &format!("missing-{title}")],
        &["run", "k.weft", "--pes", "1", "--on", "sim", "--input", "x=x.npy"],
        &["sim", "k.ptx", "--block", "64", "--arg", "zeros:u32[4]", "--check"],
        &["compile", &format!("{title}/k.weft")],
    ];
    for arguments in all {
        let out = trap.weft(arguments, &[]);
        let text = said(&out);
        assert!(!text.contains('\x1b') && text.contains("\u{241b}]0;title"), "{arguments:?}: {text:?}");
    }
}

fn an_endless_loop_ends() {
    let trap = Trap::new();
    let endless = "kernel k(x: symm<f32, (4):(1)>) block(4) {\n    let mut i = 0;\n    loop { i = i + 1; if x[0] == 77.5 { break; } x[1] = i.to<f32>(); }\n}\n";
    fs::write(trap.path("repository/endless.weft"), endless).unwrap();
    for arguments in [
        &["run", "endless.weft", "--pes", "1", "--on", "sim", "--time-limit", "1"][..],
        &["run", "endless.weft", "--pes", "1", "--on", "sim", "--max-steps", "100000"],
        &["check", "endless.weft", "--time-limit", "1"],
        &["check", "endless.weft", "--max-steps", "100000"],
    ] {
        let out = trap.weft(arguments, &[]);
        let text = said(&out);
        assert!(!out.status.success() && text.contains("S009"), "{arguments:?}: {text}");
        assert!(text.contains("--time-limit") && text.contains("--max-steps"), "{arguments:?}: {text}");
    }
}

/// Checks a kernel with 3000 sums that contain the thread's index. LLVM compared every two of them,
/// which took minutes.
fn a_long_chain_of_quotients_compiles() {
    let chain: String =
        (0..3000).map(|i| format!("    let a{} = (a{i} * 7 + thread_idx()) / (n + 1);\n", i + 1)).collect();
    let text = format!(
        "kernel k(n: int, y: global<i64, (1024):(1)>) block(32) {{\n    let a0 = n + thread_idx();\n{chain}    \
         y[a3000 % 1024] = 1;\n}}\n"
    );
    let compiled = limit::within(100, move || {
        let file = KernelFile::parse("chain.weft", &text).map_err(|e| e.to_string())?;
        let options = Options::new("sm_90a".parse().map_err(|e| format!("{e}"))?);
        file.compile(&options).map(drop).map_err(|e| e.to_string())
    });
    assert_eq!(compiled, Ok(()));
}

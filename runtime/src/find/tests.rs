use super::*;

const PTXAS: LibrarySearch = LibrarySearch {
    name: "ptxas",
    vars: &["WEFT_PTXAS"],
    folders: &["bin"],
    places: &[
        SearchPlace::Setup,
        SearchPlace::List("PATH"),
        SearchPlace::Root("CUDA_HOME"),
        SearchPlace::System("/usr/local/cuda"),
        SearchPlace::Packages,
        SearchPlace::Python,
    ],
};
const NVRTC: LibrarySearch = LibrarySearch { name: "libnvrtc.so", folders: &["lib64", "lib"], ..PTXAS };

/// A made-up machine: files below a root, variables that name paths in it, Python's folder, a library the
/// linker knows.
#[derive(Default)]
struct Made<'a> {
    files: &'a [&'a str],
    vars: &'a [(&'a str, &'a str)],
    python: Option<&'a str>,
    linker: Option<&'a str>,
}

impl Made<'_> {
    /// What a search of this machine says, with paths relative to its root.
    fn ask<T>(&self, search: impl FnOnce(&Machine<'_>) -> T, shorten: impl FnOnce(T, &Path) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for file in self.files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let var = |name: &str| {
            let (_, path) = self.vars.iter().find(|(var, _)| *var == name)?;
            Some(root.join(path).into_os_string())
        };
        let found = search(&Machine {
            var: &var,
            root,
            python: &|| self.python.map(|rel| root.join(rel).display().to_string()),
            linker: &|| {
                let path = root.join(self.linker?);
                Some(format!(
                    "2 libs found\n\tlibx.so (libc6) => /lib/libx.so\n\t{} (libc6,x86-64) => {}\n",
                    path.file_name()?.display(),
                    path.display()
                ))
            },
        });
        shorten(found, root)
    }

    fn find(&self, wanted: &LibrarySearch) -> std::result::Result<(String, String), Missing> {
        let found =
            self.ask(|machine| machine.find(wanted), |found, root| found.map(|found| relative(found, root)))?;
        Ok((found.path.display().to_string(), found.by))
    }

    fn path(&self, wanted: &LibrarySearch) -> String {
        self.find(wanted).unwrap().0
    }

    fn device(&self, sm: u32) -> Result<String> {
        let device = |machine: &Machine<'_>| device_of(machine, sm).map_err(no_device);
        let found = self.ask(device, |found, root| Ok(relative(found?, root)))?;
        Ok(found.path.display().to_string())
    }
}

fn relative(found: Found, root: &Path) -> Found {
    Found { path: found.path.strip_prefix(root).unwrap().to_owned(), by: found.by }
}

#[test]
fn the_order_is_variable_setup_path_toolkit_wheels() {
    let files = [
        ("mine", "WEFT_PTXAS"),
        ("cache/warpweft/wheels/ptxas/nvidia/cu13/bin/ptxas", "`weft setup`"),
        ("path/ptxas", "PATH"),
        ("cuda/bin/ptxas", "CUDA_HOME"),
        ("usr/local/cuda/bin/ptxas", "the system"),
        ("home/.local/lib/python3.11/site-packages/nvidia/cu13/bin/ptxas", "Python's packages"),
    ];
    let vars = [
        ("WEFT_PTXAS", "mine"),
        ("XDG_CACHE_HOME", "cache"),
        ("PATH", "path"),
        ("CUDA_HOME", "cuda"),
        ("HOME", "home"),
    ];
    for first in 0..files.len() {
        let names: Vec<_> = files[first..].iter().map(|(name, _)| *name).collect();
        let made = Made { files: &names, vars: &vars[first.min(1)..], ..Made::default() };
        let (path, by) = made.find(&PTXAS).unwrap();
        assert_eq!((&*path, &*by), files[first]);
    }
}

#[test]
fn wheels_of_either_layout_are_found_and_the_newest_cuda_wins() {
    let old = ["venv/lib/python3.9/site-packages/nvidia/cuda_nvcc/bin/ptxas"];
    let made = Made { files: &old, vars: &[("VIRTUAL_ENV", "venv")], ..Made::default() };
    assert_eq!(made.path(&PTXAS), old[0]);
    let both = ["py/nvidia/cu12/bin/ptxas", "py/nvidia/cu13/bin/ptxas"];
    assert_eq!(Made { files: &both, python: Some("py"), ..Made::default() }.path(&PTXAS), both[1]);
    let lib = ["py/nvidia/cu13/lib/libnvrtc.so.13"];
    assert_eq!(Made { files: &lib, python: Some("py"), ..Made::default() }.path(&NVRTC), lib[0]);
}

#[test]
fn cublas_is_found_in_wheels_of_either_layout_and_by_the_linker() {
    let files = ["py/nvidia/cublas/lib/libcublasLt.so.12", "py/nvidia/cu13/lib/libcublasLt.so.13"];
    let made = |files| Made { files, python: Some("py"), ..Made::default() };
    assert_eq!(made(&files).path(&CUBLAS_LT), files[1]);
    assert_eq!(made(&files[..1]).path(&CUBLAS_LT), files[0]);
    // The linker knows libraries by their versions; of another name that begins alike it is not asked.
    let linker = ["usr/lib/libcublasLt.so.12"];
    let made = |file| Made { files: &linker, linker: Some(file), ..Made::default() };
    let (path, by) = made(linker[0]).find(&CUBLAS_LT).unwrap();
    assert_eq!((&*path, &*by), (linker[0], "the linker's cache"));
    assert!(made("usr/lib/libcublasLt_static.so.12").find(&CUBLAS_LT).is_err());
}

#[test]
fn absence_lists_the_places() {
    let vars = [("CUDA_HOME", "cuda"), ("HOME", "me")];
    let missing = Made { vars: &vars, python: Some("py"), ..Made::default() }.find(&PTXAS);
    let Err(Missing::Everywhere(searched)) = missing else { panic!("{missing:?}") };
    let places = [
        "WEFT_PTXAS (not set)",
        "/me/.cache/warpweft/wheels",
        "PATH",
        "/cuda/bin",
        "/usr/local/cuda/bin",
        "/py/nvidia/*/bin",
    ];
    assert_eq!(searched.len(), places.len(), "{searched:?}");
    assert!(searched.iter().zip(places).all(|(place, end)| place.ends_with(end)), "{searched:?}");
}

#[test]
fn a_variable_that_names_nothing_is_said() {
    let vars = [("WEFT_PTXAS", "no"), ("PATH", "path")];
    let missing = Made { files: &["path/ptxas"], vars: &vars, ..Made::default() }.find(&PTXAS);
    assert!(
        matches!(&missing, Err(Missing::Named("WEFT_PTXAS", path)) if path.ends_with("no")),
        "{missing:?}"
    );
}

#[test]
fn nvshmem_is_found_in_each_of_its_places() {
    let places = [
        ("a/lib/libnvshmem_host.so.3", "WEFT_NVSHMEM"),
        ("b/lib/libnvshmem_host.so.3", "NVSHMEM_HOME"),
        ("cache/warpweft/wheels/nvshmem/nvidia/nvshmem/lib/libnvshmem_host.so.3", "`weft setup`"),
        ("ld/libnvshmem_host.so.3", "LD_LIBRARY_PATH"),
        ("ldconfig/libnvshmem_host.so.3", "the linker's cache"),
        ("conda/lib/python3.12/site-packages/nvidia/nvshmem/lib/libnvshmem_host.so.3", "Python's packages"),
        ("usr/lib/x86_64-linux-gnu/nvshmem/13/libnvshmem_host.so.3", "the system"),
        ("opt/nvidia/nvshmem/lib/libnvshmem_host.so.3", "the system"),
    ];
    let vars = [
        ("WEFT_NVSHMEM", "a"),
        ("NVSHMEM_HOME", "b"),
        ("XDG_CACHE_HOME", "cache"),
        ("LD_LIBRARY_PATH", "ld"),
        ("CONDA_PREFIX", "conda"),
    ];
    for first in 0..places.len() {
        let files: Vec<_> = places[first..].iter().map(|(path, _)| *path).collect();
        let linker = Some("ldconfig/libnvshmem_host.so.3");
        let made = Made { files: &files, vars: &vars[first.min(2)..], linker, ..Made::default() };
        let (path, by) = made.find(&NVSHMEM).unwrap();
        assert_eq!((&*path, &*by), places[first]);
    }
}

#[test]
fn bitcode_comes_from_beside_the_host_library_and_the_highest_architecture_not_above() {
    let vars = [("NVSHMEM_HOME", "b"), ("LD_LIBRARY_PATH", "ld")];
    let files = [
        "ld/libnvshmem_host.so.3",
        "ld/libnvshmem_device_sm_75.bc",
        "ld/libnvshmem_device_sm_90.bc",
        "ld/libnvshmem_device_sm_100.bc",
        "py/nvidia/nvshmem/lib/libnvshmem_device.bc",
    ];
    let made = Made { files: &files, vars: &vars[1..], python: Some("py"), ..Made::default() };
    for (sm, file) in [(90, files[2]), (99, files[2]), (100, files[3]), (120, files[3]), (80, files[1])] {
        assert_eq!(made.device(sm).unwrap(), file);
    }
    // None beside it that is not above: elsewhere.
    assert_eq!(made.device(70).unwrap(), files[4]);
    // A variable may name the host library itself.
    let vars = [("WEFT_NVSHMEM", "ld/libnvshmem_host.so.3")];
    assert_eq!(Made { files: &files, vars: &vars, ..Made::default() }.device(90).unwrap(), files[2]);
    // Before 3.7 there is one file for all.
    let files = ["b/lib/libnvshmem_host.so.3", "b/lib/libnvshmem_device.bc"];
    let vars = [("NVSHMEM_HOME", "b")];
    assert_eq!(Made { files: &files, vars: &vars, ..Made::default() }.device(90).unwrap(), files[1]);
}

#[test]
fn absence_of_nvshmem_says_where_it_was_looked_for_and_what_to_do() {
    let nowhere = Made { python: Some("py"), ..Made::default() };
    let e = nowhere.device(90).unwrap_err();
    assert_eq!(e.code, NO_NVSHMEM);
    let text = e.to_string();
    for part in ["NVSHMEM_HOME (not set)", "LD_LIBRARY_PATH", "py/nvidia/*/lib", "weft setup", "pip install"]
    {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    let empty = Made { vars: &[("NVSHMEM_HOME", "nothing")], ..Made::default() };
    let text = empty.device(90).unwrap_err().to_string();
    assert!(text.contains("NVSHMEM_HOME is set to") && text.contains("nothing"), "{text}");
}

#[test]
fn a_relative_cache_folder_is_ignored() {
    let machine = Machine {
        var: &|name| match name {
            "XDG_CACHE_HOME" => Some("here".into()),
            "HOME" => Some("/h".into()),
            _ => None,
        },
        root: Path::new("/"),
        python: &|| None,
        linker: &|| None,
    };
    assert_eq!(machine.cache_folder().unwrap(), Path::new("/h/.cache/warpweft"));
}

//! Tests of the kernel cache: the key of an entry, the treatment of a damaged folder, and the limit
//! of its size.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use weft::gpu::cache::{Cache, Entry, Found, Key};
use weft::{Define, KernelFile, Lowering, OptLevel, Options};

const PART: &str = "fn twice(v) { return v * 2; }\n";
const WHOLE: &str = "use \"part.weft\";
kernel k<N: int>(x: global<f32, (N):(1)>) block(64) {
    let mine = partition(x, threads());
    for i in 0..size<1>(mine) { mine[_, i] = twice(mine[_, i]); }
}
";

/// A folder with a kernel file and a file that it uses.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Scratch {
        let place = Scratch(TempDir::new().unwrap());
        fs::write(place.0.path().join("part.weft"), PART).unwrap();
        fs::write(place.0.path().join("whole.weft"), WHOLE).unwrap();
        place
    }

    fn file(&self) -> KernelFile {
        let path = self.0.path().join("whole.weft");
        let text = fs::read_to_string(&path).unwrap();
        KernelFile::parse(&path.display().to_string(), &text).unwrap_or_else(|e| panic!("{e}"))
    }

    fn cache(&self) -> Cache {
        Cache::at(self.0.path().join("kernels"))
    }

    fn entries(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.0.path().join("kernels")).unwrap();
        folder.map(|e| e.unwrap().path()).collect()
    }
}

fn options() -> Options {
    let mut options = Options::new("sm_90a".parse().unwrap());
    options.defines = [("N".to_owned(), Define::Int(1000))].into();
    options
}

fn never() -> Result<Entry, String> {
    Err("compiled again".into())
}

#[test]
fn the_key_depends_on_every_input_of_the_code() {
    let place = Scratch::new();
    let file = place.file();
    let change: [&dyn Fn(&mut Options); 12] = [
        &|_| {},
        &|o| o.target = "sm_100a".parse().unwrap(),
        &|o| o.ptx_version = Some("8.6".parse().unwrap()),
        &|o| o.lowering = Lowering::Unicast,
        &|o| o.kernel = Some("k".into()),
        &|o| o.defines = [("N".into(), Define::Int(1001))].into(),
        &|o| o.defines = [("N".into(), Define::Float(1000.0))].into(),
        &|o| o.opt = OptLevel::O3,
        &|o| o.lines = false,
        &|o| o.debug_waits = Some(1000),
        &|o| o.watch = true,
        &|o| o.asserts = false,
    ];
    let keys: BTreeSet<_> = change
        .iter()
        .map(|change| {
            let mut options = options();
            change(&mut options);
            Key::of(&file, &options).to_string()
        })
        .collect();
    assert_eq!(keys.len(), change.len());

    let key = Key::of(&file, &options());
    assert_eq!(Key::of(&place.file(), &options()), key);
    let mut kept = options();
    kept.keep_llvm = true;
    assert_eq!(Key::of(&file, &kept), key);
    assert_ne!(key.with(&["cubin", "13.0"]), key.with(&["cubin", "12.9"]));
    assert_ne!(key.with(&["a", "b"]), key.with(&["ab"]));

    for (name, text) in [("part.weft", PART), ("whole.weft", WHOLE)] {
        let path = place.0.path().join(name);
        fs::write(&path, format!("{text} ")).unwrap();
        assert_ne!(Key::of(&place.file(), &options()), key, "{name}");
        fs::write(&path, text).unwrap();
        assert_eq!(Key::of(&place.file(), &options()), key, "{name}");
    }
}

#[test]
fn a_kernel_is_compiled_once() {
    let place = Scratch::new();
    let (file, options) = (place.file(), options());
    let key = Key::of(&file, &options);
    let cache = place.cache();
    let (made, found) = cache.get_or_make(&key, || Entry::compile(&file, &options)).unwrap();
    assert_eq!(found, Found::Made);
    assert!(made.image.starts_with(b"//") || made.image.windows(8).any(|w| w == b".version"));
    assert_eq!(made.info.kernels[0].name, "k");
    assert_eq!(cache.get_or_make(&key, never).unwrap(), (made.clone(), Found::Memory));
    // This stands for another process.
    let (read, found) = place.cache().get_or_make(&key, never).unwrap();
    assert_eq!((&*read, found), (&*made, Found::Disk));
    // The folder contains only complete files.
    assert_eq!(place.entries(), [place.0.path().join(format!("kernels/{key}.kernel"))]);
}

#[test]
fn damaged_entries_are_replaced() {
    let place = Scratch::new();
    let (file, options) = (place.file(), options());
    let key = Key::of(&file, &options);
    let entry = Entry::compile(&file, &options).unwrap();
    let cache = place.cache();
    cache.put(&key, entry.clone());
    let path = place.entries().remove(0);
    let whole = fs::read(&path).unwrap();
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        bytes
    };
    for bytes in [
        Vec::new(),
        whole[..20].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        damaged(&|b| b.push(0)),
        damaged(&|b| b[0] ^= 1),
        damaged(&|b| b[30] ^= 1),
        damaged(&|b| b[50] ^= 0x80),
        damaged(&|b| *b.last_mut().unwrap() ^= 1),
    ] {
        fs::write(&path, bytes).unwrap();
        let cache = place.cache();
        assert_eq!(cache.get(&key), None);
        let (again, found) = cache.get_or_make(&key, || Ok::<_, String>(entry.clone())).unwrap();
        assert_eq!((&*again, found), (&entry, Found::Made));
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

#[test]
fn a_folder_that_cannot_be_written_does_no_harm() {
    let place = Scratch::new();
    let (file, options) = (place.file(), options());
    let key = Key::of(&file, &options);
    // There is a file at the path of the folder.
    let cache = Cache::at(place.0.path().join("part.weft").join("kernels"));
    let (made, _) = cache.get_or_make(&key, || Entry::compile(&file, &options)).unwrap();
    assert_eq!(cache.get_or_make(&key, never).unwrap(), (made, Found::Memory));
}

#[test]
fn the_oldest_go_when_the_folder_is_full() {
    let place = Scratch::new();
    let (file, options) = (place.file(), options());
    let mut entry = Entry::compile(&file, &options).unwrap();
    entry.image = vec![7; 10_000];
    let keys: Vec<Key> = (0..6).map(|i| Key::of(&file, &options).with(&[&i.to_string()])).collect();
    let cache = || place.cache().max_bytes(45_000);
    let age = |key: &Key, hours: u64| {
        let path = place.0.path().join(format!("kernels/{key}.kernel"));
        let then = SystemTime::now() - Duration::from_secs(3600 * hours);
        File::options().append(true).open(path).unwrap().set_modified(then).unwrap();
    };
    for (key, hours) in keys[..4].iter().zip([4, 3, 2, 1]) {
        cache().put(key, entry.clone());
        age(key, hours);
    }
    assert_eq!(place.entries().len(), 4);
    // The first entry was used just now, so it is the newest.
    assert!(cache().get(&keys[0]).is_some());
    cache().put(&keys[4], entry.clone());
    let there = |i: usize| cache().get(&keys[i]).is_some();
    assert_eq!([0, 1, 2, 3, 4].map(there), [true, false, true, true, true]);
    fs::write(place.0.path().join("kernels/README"), vec![0; 100_000]).unwrap();
    cache().put(&keys[5], entry);
    assert!(Path::new(&place.0.path().join("kernels/README")).exists());
    assert!(there(5));
}

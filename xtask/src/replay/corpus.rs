//! The kernels of the corpus, and the options with which each is compiled.

use super::Case;
use anyhow::{Context, Result, anyhow};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../../tests/support/directives.rs"]
mod directives;
#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../../tests/support/seeded.rs"]
mod seeded;

/// The revision whose text of a file a compiler gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    /// Both compilers get the text of the working tree, so that an edited kernel is not a
    /// difference of the compilers.
    Shared,
    /// Each compiler gets its own text, because these files are part of the compiler or in a format
    /// that changes with it.
    Own,
}

/// The options with which a kind of file is compiled, for a file's name and text.
type Settings = fn(&Path, &str, &str) -> Result<BTreeSet<Case>>;

/// A folder of the corpus.
struct Source {
    folder: &'static str,
    extension: &'static str,
    text: Text,
    settings: Settings,
}

const SOURCES: [Source; 6] = [
    Source { folder: "examples", extension: "weft", text: Text::Shared, settings: of_library },
    Source { folder: "warpweft/src/library", extension: "weft", text: Text::Own, settings: of_library },
    Source { folder: "tests/filetests", extension: "weft", text: Text::Shared, settings: of_file_test },
    Source { folder: "tests/broken", extension: "weft", text: Text::Shared, settings: of_broken },
    Source { folder: "tests/filetests", extension: "ir", text: Text::Own, settings: of_ir },
    Source { folder: "codegen/passes/tests", extension: "ir", text: Text::Own, settings: of_ir },
];

const LOWERINGS: [&str; 2] = ["multimem", "unicast"];
const TRANSPORTS: [&str; 3] = ["auto", "nvshmem", "p2p"];

/// Values of compile-time parameters of kernels of the library and the examples. A kernel gets the
/// values of those parameters that it has.
const DEFINES: [&str; 5] = [
    "N=1003",
    "N=1000 T=bf16 P=4 DIV=32 DIRECT=true",
    "N=1003 T=e4m3 ACC=f16 P=2 ALIGN=1",
    "N=4096 T=i32 ACC=i32 OP=max P=3 UNROLL=2 ROOT=1 MC=true",
    "N=64 T=f16 H=5120 P=4 OUT=e4m3 PER_TOKEN=true BOTH=true",
];

/// Writes the corpus into a folder. Shared texts come from the tree `shared`, and texts that belong
/// to the compiler from `own`.
///
/// # Errors
/// Fails if a file cannot be read or written.
pub fn write(folder: &Path, shared: &Path, own: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    for source in &SOURCES {
        let root = if source.text == Text::Shared { shared } else { own };
        for file in files(root, source)? {
            let text = read(&root.join(&file))?;
            // In a file test, the directives precede the IR and are not part of it.
            let ir = || text.lines().filter(|line| !line.starts_with("//")).map(|line| format!("{line}\n"));
            let text = if source.extension == "ir" { ir().collect() } else { text };
            let path = folder.join(&file);
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// A hash for each file of a corpus that [`write()`] wrote, over its text and the texts that it can
/// use.
///
/// # Errors
/// Fails if a file cannot be read.
pub fn fingerprints(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    for source in &SOURCES {
        for file in files(folder, source)? {
            texts.insert(file.display().to_string(), blake3::hash(read(&folder.join(&file))?.as_bytes()));
        }
    }
    let mut used = blake3::Hasher::new();
    for (_, text) in texts.iter().filter(|(file, _)| is_used(Path::new(file))) {
        used.update(text.as_bytes());
    }
    let print = |text: blake3::Hash| {
        let all = used.clone().update(text.as_bytes()).finalize();
        all.to_hex()[..16].to_owned()
    };
    Ok(texts.into_iter().map(|(file, text)| (file, print(text))).collect())
}

/// Whether other files use this file, so that it is not compiled by itself.
fn is_used(file: &Path) -> bool {
    file.iter().any(|part| part == "used")
}

/// Every case of a corpus that [`write()`] wrote.
///
/// # Errors
/// Fails if a file cannot be read, or has directives that its tests would reject too.
pub fn cases(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for source in &SOURCES {
        for file in files(folder, source)?.iter().filter(|file| !is_used(file)) {
            let name = file.display().to_string();
            let settings = (source.settings)(folder, &name, &read(&folder.join(file))?);
            for setting in settings.with_context(|| name)? {
                for (lowering, transport) in LOWERINGS.iter().flat_map(|l| TRANSPORTS.map(|t| (*l, t))) {
                    let how = ["--lowering", lowering, "--transport", transport].map(str::to_owned);
                    cases.push([&setting[..], &how].concat());
                }
            }
        }
    }
    Ok(cases)
}

/// The files of a source, relative to the root.
fn files(root: &Path, source: &Source) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(source.folder)];
    while let Some(folder) = folders.pop() {
        let at = root.join(&folder);
        // A revision need not have every folder.
        let entries = if at.exists() { Some(fs::read_dir(&at)?) } else { None };
        for entry in entries.into_iter().flatten() {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == source.extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A case: a file with the options `before` and these compile-time parameters.
fn case(file: &str, before: &[(&str, &str)], defines: &BTreeMap<String, String>) -> Case {
    let options = before.iter().flat_map(|(option, value)| [(*option).to_owned(), (*value).to_owned()]);
    let defines = defines.iter().flat_map(|(name, value)| ["-D".to_owned(), format!("{name}={value}")]);
    std::iter::once(file.to_owned()).chain(options).chain(defines).collect()
}

/// Compiles each kernel by itself, with every row of [`DEFINES`].
fn of_library(_: &Path, file: &str, text: &str) -> Result<BTreeSet<Case>> {
    let mut cases = BTreeSet::new();
    for (kernel, generics) in kernels(text) {
        for row in DEFINES {
            let pairs = row.split_whitespace().filter_map(|pair| pair.split_once('='));
            let own = pairs.filter(|(name, _)| generics.iter().any(|g| g == name));
            let defines = own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            cases.insert(case(file, &[("--kernel", kernel)], &defines));
        }
    }
    Ok(cases)
}

/// Compiles a file of seeded bugs as it is. A file that changes kernels of the library has no
/// cases, because these kernels are compiled with the library.
fn of_broken(_: &Path, file: &str, text: &str) -> Result<BTreeSet<Case>> {
    if text.lines().any(|line| line.starts_with("// from:")) {
        return Ok(BTreeSet::new());
    }
    let seeded = seeded::Seeded::read(text, false).map_err(|e| anyhow!(e))?;
    let defines = seeded.pairs("define").map_err(|e| anyhow!(e))?;
    let defines = defines.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok([case(file, &[], &defines.collect())].into())
}

fn of_ir(_: &Path, file: &str, _: &str) -> Result<BTreeSet<Case>> {
    Ok([case(file, &[], &BTreeMap::new())].into())
}

/// Compiles a file test as its directives state, with every combination of compile-time parameters
/// with which it runs.
fn of_file_test(folder: &Path, file: &str, text: &str) -> Result<BTreeSet<Case>> {
    let expects = directives::parse(text).map_err(|e| anyhow!(e))?;
    let source = expects.source.as_deref().unwrap_or(file);
    let source_text = read(&folder.join(source))?;
    let generics: BTreeSet<_> =
        kernels(&source_text).into_iter().flat_map(|(_, generics)| generics).collect();
    let fixed: BTreeMap<_, _> = expects.defines.iter().cloned().collect();
    let mut settings: Vec<_> = expects.runs.iter().flat_map(directives::Sweep::settings).collect();
    if settings.is_empty() || !expects.stages.is_empty() {
        settings.push(Vec::new());
    }
    let one = |setting: directives::Setting| {
        let mut defines = fixed.clone();
        let mut options = Vec::new();
        options.extend(expects.arch.as_deref().map(|arch| ("--arch", arch)));
        options.extend(expects.ptx.as_deref().map(|version| ("--ptx-version", version)));
        for (word, value) in &setting {
            match word.as_str() {
                "arch" => {
                    options.retain(|(option, _)| *option != "--arch");
                    options.push(("--arch", value));
                }
                "waits" => options.push(("--debug-waits", value)),
                word if generics.contains(word) => {
                    defines.insert(word.to_owned(), value.clone());
                }
                // All lowerings and transports are compiled in any case, and other words concern
                // only the run.
                _ => {}
            }
        }
        case(source, &options, &defines)
    };
    Ok(settings.into_iter().map(one).collect())
}

/// Each kernel of a text with its compile-time parameters. Only heads at the beginning of a line
/// are found, as `weft` prints them.
fn kernels(text: &str) -> Vec<(&str, Vec<&str>)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let head = |(at, _): (usize, &str)| {
        let rest = text[at..].strip_prefix("kernel ").filter(|_| text[..at].ends_with(['\n']) || at == 0)?;
        let end = rest.find(|c| !is_word(c))?;
        let list = rest[end..].strip_prefix('<').and_then(|list| list.split_once('>')).map(|(list, _)| list);
        let names = list.unwrap_or_default().split(',').filter_map(|one| one.split_once(':'));
        Some((&rest[..end], names.map(|(name, _)| name.trim()).collect()))
    };
    text.match_indices("kernel ").filter_map(head).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn heads_of_kernels_are_found() {
        let text =
            "// kernel no<A: int>()\nkernel a<T: dtype = f32,\n    N: int % 8>(x: i32) {}\nkernel b() {}\n";
        assert_eq!(kernels(text), [("a", vec!["T", "N"]), ("b", vec![])]);
    }

    /// Checks that each source has files, and that each file is compiled in every way.
    #[test]
    fn the_corpus_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), root(), root()).unwrap();
        let cases = cases(folder.path()).unwrap();
        for source in &SOURCES {
            let (folder, extension) = (format!("{}/", source.folder), format!(".{}", source.extension));
            let of_it = |case: &&Case| case[0].starts_with(&folder) && case[0].ends_with(&extension);
            assert!(cases.iter().any(|case| of_it(&case)), "{folder} {extension}");
        }
        for (lowering, transport) in LOWERINGS.iter().flat_map(|l| TRANSPORTS.map(|t| (*l, t))) {
            let words = [
                "examples/allreduce_two_shot.weft",
                "-D",
                "N=1003",
                "--lowering",
                lowering,
                "--transport",
                transport,
            ];
            let found = cases.iter().any(|case| words.iter().all(|word| case.iter().any(|w| w == word)));
            assert!(found, "{words:?}");
        }
    }

    #[test]
    fn a_fingerprint_depends_on_a_file_and_the_files_it_uses() {
        let folder = tempfile::tempdir().unwrap();
        let tests = folder.path().join("tests/filetests");
        fs::create_dir_all(tests.join("used")).unwrap();
        let prints = |a: &str, b: &str, used: &str| {
            for (name, text) in [("a.weft", a), ("b.weft", b), ("used/c.weft", used)] {
                fs::write(tests.join(name), text).unwrap();
            }
            let prints = fingerprints(folder.path()).unwrap();
            ["a", "b"].map(|name| prints[&format!("tests/filetests/{name}.weft")].clone())
        };
        let [a, b] = prints("one", "two", "three");
        assert_eq!(prints("one", "two", "three"), [a.clone(), b.clone()]);
        let [other, same] = prints("four", "two", "three");
        assert!(other != a && same == b);
        let [other_a, other_b] = prints("one", "two", "four");
        assert!(other_a != a && other_b != b);
    }

    #[test]
    fn a_file_test_gives_a_case_for_each_combination() {
        let folder = tempfile::tempdir().unwrap();
        let text = "// define: N=7\n// arch: sm_100a\n// run: pes=1,2 N=8,9 n=3 waits=10\n\
                    kernel k<N: int>(n: i32) {}\n";
        fs::write(folder.path().join("k.weft"), text).unwrap();
        let cases = of_file_test(folder.path(), "k.weft", text).unwrap();
        let wanted = ["8", "9"].map(|n| format!("k.weft --arch sm_100a --debug-waits 10 -D N={n}"));
        assert_eq!(cases.iter().map(|case| case.join(" ")).collect::<Vec<_>>(), wanted);
    }
}

//! Kernels with one seeded bug, and the directives that describe the expected findings. A file contains two programs. In
//! the broken one, the lines that begin with `//+` are comments. In the fixed one these lines are code, and the lines that
//! end in `//-` are left out. Comments at the head of the file are the directives:
//!
//! | directive | meaning |
//! |---|---|
//! | `finds: CODE LABEL...` | a finding at the lines that end in `//~ LABEL`; for a race these are the lines of both accesses |
//! | `then: CODE LABEL...` | a finding that is listed after the previous one |
//! | `says: TEXT` | the previous finding contains the text in its message, notes or help, or in its accesses |
//! | `denies: TEXT` | the previous finding does not contain the text |
//! | `may: CODE LABEL...` | a finding that only some schedules have |
//! | `within: 20` | the number of seeds that find everything; the default is 1 |
//! | `clean: 50` | the number of seeds with which nothing is found in the fixed program; the default is 20 |
//! | `pes: 2,4` | the numbers of PEs; the default is 2 |
//!
//! The following directives are for `.weft` files:
//!
//! | directive | meaning |
//! |---|---|
//! | `from: FILE...` | the program is the concatenated text of these files and of this one, without their `use` of parts that are among them |
//! | `replace: TEXT`, `by: TEXT` | the bug: the first occurrence of a text in that program, and its replacement, in one line |
//! | `label: NAME TEXT` | the first line of that program that contains the text |
//! | `launches: 2` | the number of launches of a run; the default is 1 |
//! | `sequence: a b` | the kernels of the file that a launch runs one after the other; by default each kernel runs by itself |
//! | `overlap: true` | the command's option |
//! | `grid: 4` | the number of CTAs of a PE |
//! | `arch: sm_120` | the command's option; the default is `sm_90a` |
//! | `lowering: unicast`, `transport: p2p` | the command's options; the defaults are `multimem` and `nvshmem` |
//! | `define: N=100`, `arg: n=3`, `arg: n=1+1` | values of compile-time parameters and of run-time scalars |
//!
//! The following directives are for `.ptx` files:
//!
//! | directive | meaning |
//! |---|---|
//! | `launch: grid=4 block=64` | also `cluster`, `shared` (in bytes) and `sms` (of a PE); the default is 1 CTA of 32 threads |
//! | `memory: x 4096 zero` | a symmetric allocation and its contents: `zero`, `iota` (words that differ by PE), `none` |
//! | `args: x x@next x@mc pe` | `NAME` (this PE's address), `NAME@next` and `NAME@0` (another PE's), `NAME@mc` (multicast), `pe`, `pes`, and numbers |

use std::collections::BTreeMap;

/// A code and its lines, sorted.
pub type Key = (String, Vec<u32>);

/// An expected finding.
#[derive(Debug, Default)]
pub struct Expected {
    pub code: String,
    pub labels: Vec<String>,
    pub says: Vec<String>,
    pub denies: Vec<String>,
    /// Whether the finding is listed after the previous one.
    pub behind: bool,
}

/// A file with a seeded bug.
#[derive(Debug)]
pub struct Seeded {
    pub finds: Vec<Expected>,
    pub may: Vec<Expected>,
    pub within: u64,
    pub clean: u64,
    pub pes: Vec<usize>,
    /// The other directives, in order.
    pub words: Vec<(String, String)>,
    labels: BTreeMap<String, u32>,
    pub broken: String,
    pub mended: String,
}

/// The directives of each kind of file.
const WORDS: [&[&str]; 2] = [
    &[
        "launches",
        "sequence",
        "overlap",
        "grid",
        "arch",
        "lowering",
        "transport",
        "define",
        "arg",
        "from",
        "replace",
        "by",
        "label",
    ],
    &["launch", "memory", "args"],
];

impl Seeded {
    /// Reads a file, which is PTX if `ptx` is set.
    pub fn read(text: &str, ptx: bool) -> Result<Seeded, String> {
        let mut seeded = Seeded {
            finds: Vec::new(),
            may: Vec::new(),
            within: 1,
            clean: 20,
            pes: vec![2],
            words: Vec::new(),
            labels: BTreeMap::new(),
            broken: text.to_owned(),
            mended: String::new(),
        };
        for (line, number) in text.lines().zip(1..) {
            seeded.line(line, number, WORDS[usize::from(ptx)]).map_err(|e| format!("line {number}: {e}"))?;
        }
        if let Some(files) = seeded.word("from") {
            seeded.mended = shipped(files)? + text;
            seeded.spoil()?;
        }
        if seeded.finds.is_empty() {
            return Err("nothing is to be found: say `// finds: CODE LABEL`".into());
        }
        if seeded.mended == seeded.broken {
            return Err("nothing is mended: end a line in `//-` or begin one with `//+`".into());
        }
        seeded.finds.iter().chain(&seeded.may).try_for_each(|e| seeded.key(e).map(drop))?;
        Ok(seeded)
    }

    fn line(&mut self, line: &str, number: u32, words: &[&str]) -> Result<(), String> {
        let code = line.trim_start();
        // Line numbers do not change.
        self.mended += match code.strip_prefix("//+") {
            Some(right) => right,
            None if code.ends_with("//-") => "",
            None => line,
        };
        self.mended.push('\n');
        if let Some((_, names)) = line.split_once("//~") {
            for name in names.trim_end_matches("//-").split_whitespace() {
                if self.labels.insert(name.to_owned(), number).is_some() {
                    return Err(format!("there are two lines `{name}`"));
                }
            }
        }
        let directive = code.strip_prefix("// ").and_then(|rest| rest.split_once(':'));
        let Some((word, rest)) = directive.filter(|(w, _)| w.bytes().all(|b| b.is_ascii_lowercase())) else {
            return Ok(());
        };
        self.take(word, rest.trim(), words)
    }

    fn take(&mut self, word: &str, rest: &str, words: &[&str]) -> Result<(), String> {
        let number = || rest.parse().map_err(|e| format!("{word}: {rest}: {e}"));
        let expected = || {
            let mut all = rest.split_whitespace().map(str::to_owned);
            let code = all.next().ok_or(format!("{word}: expected a code"))?;
            Ok::<_, String>(Expected { code, labels: all.collect(), ..Expected::default() })
        };
        match word {
            "finds" | "then" => self.finds.push(Expected { behind: word == "then", ..expected()? }),
            "may" => self.may.push(expected()?),
            "says" | "denies" => {
                let expected = self.finds.last_mut().ok_or(format!("`{word}` follows a `finds`"))?;
                let texts = if word == "says" { &mut expected.says } else { &mut expected.denies };
                texts.push(rest.to_owned());
            }
            "within" => self.within = number()?,
            "clean" => self.clean = number()?,
            "pes" => {
                let each = rest.split(',').map(|n| n.trim().parse().map_err(|e| format!("pes: {n}: {e}")));
                self.pes = each.collect::<Result<_, _>>()?;
            }
            _ if words.contains(&word) => self.words.push((word.to_owned(), rest.to_owned())),
            other => return Err(format!("unknown directive `{other}` (a comment must not begin like one)")),
        }
        Ok(())
    }

    /// Makes the broken program from the fixed one, as the directives state.
    fn spoil(&mut self) -> Result<(), String> {
        let (old, new): (Vec<_>, Vec<_>) = (self.all("replace").collect(), self.all("by").collect());
        let mut broken = self.mended.clone();
        for (i, old) in old.into_iter().enumerate() {
            if !broken.contains(old) {
                return Err(format!("replace: there is no `{old}`"));
            }
            broken = broken.replacen(old, new.get(i).copied().unwrap_or_default(), 1);
        }
        let mut labels = BTreeMap::new();
        for label in self.all("label") {
            let (name, text) = label.split_once(' ').ok_or("label: expected a name and a text")?;
            let line =
                broken.lines().zip(1..).find(|(line, _)| !line.starts_with("//") && line.contains(text));
            let (_, number) = line.ok_or(format!("label: there is no `{text}`"))?;
            labels.insert(name.to_owned(), number);
        }
        (self.broken, self.labels) = (broken, labels);
        Ok(())
    }

    /// The code and the lines of an expected finding.
    pub fn key(&self, expected: &Expected) -> Result<Key, String> {
        let line =
            |label: &String| self.labels.get(label).copied().ok_or(format!("there is no line `{label}`"));
        let mut lines = expected.labels.iter().map(line).collect::<Result<Vec<_>, _>>()?;
        lines.sort_unstable();
        Ok((expected.code.clone(), lines))
    }

    /// The values of a directive.
    pub fn all<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.words.iter().filter(move |(w, _)| w == word).map(|(_, rest)| &**rest)
    }

    /// The last value of a directive.
    pub fn word<'a>(&'a self, word: &'a str) -> Option<&'a str> {
        self.all(word).last()
    }

    /// The pairs `a=1 b=2` of all directives with this word.
    pub fn pairs(&self, word: &str) -> Result<Vec<(&str, &str)>, String> {
        let words =
            self.words.iter().filter(|(w, _)| w == word).flat_map(|(_, rest)| rest.split_whitespace());
        words.map(|w| w.split_once('=').ok_or(format!("{word}: `{w}`: expected name=value"))).collect()
    }
}

/// The concatenated text of files, without their `use` of each other.
fn shipped(files: &str) -> Result<String, String> {
    let files: Vec<&str> = files.split_whitespace().collect();
    let own = files.iter().filter_map(|file| std::path::Path::new(file).file_stem()?.to_str());
    let own: Vec<String> = own.map(|name| format!("use weft::{name};")).collect();
    let mut all = String::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        for line in text.lines().filter(|line| !own.iter().any(|own| own == line)) {
            all += line;
            all.push('\n');
        }
    }
    Ok(all)
}

//! Kernels with one seeded bug, and how they say what is to be found in them. A file is two programs: in the broken one
//! the lines that begin with `//+` are comments, in the mended one they stand and those that end in `//-` do not.
//! Comments at its head say the rest:
//!
//! | directive | meaning |
//! |---|---|
//! | `finds: CODE LABEL...` | a finding, at the lines that end in `//~ LABEL`: of a race the lines of both accesses |
//! | `then: CODE LABEL...` | a finding that is listed behind the one before |
//! | `says: TEXT` | the finding before says so: in its message, notes or help, or of its accesses |
//! | `denies: TEXT` | the finding before does not say so |
//! | `may: CODE LABEL...` | is found by some schedules as well |
//! | `within: 20` | the number of seeds that finds all of it; 1 if left out |
//! | `clean: 50` | the number of seeds in which nothing is found in the mended program; 20 if left out |
//! | `pes: 2,4` | numbers of PEs; 2 if left out |
//!
//! Of `.weft` files:
//!
//! | directive | meaning |
//! |---|---|
//! | `from: FILE...` | the program is the text of these files and of this one, one behind the other, without their `use` of parts that are among them |
//! | `replace: TEXT`, `by: TEXT` | the bug: the first place of a text in that program, and what stands there instead, in one line |
//! | `label: NAME TEXT` | the first line of that program that has such a text |
//! | `launches: 2` | launches of a run; 1 if left out |
//! | `sequence: a b` | the kernels of the file that a launch runs, one after the other; each by itself if left out |
//! | `overlap: true` | as the command's option |
//! | `grid: 4` | CTAs of a PE |
//! | `arch: sm_120` | as the command's option; `sm_90a` if left out |
//! | `lowering: unicast`, `transport: p2p` | as the command's options, `multimem` and `nvshmem` if left out |
//! | `define: N=100`, `arg: n=3`, `arg: n=1+1` | compile-time parameters, run-time scalars |
//!
//! Of `.ptx` files:
//!
//! | directive | meaning |
//! |---|---|
//! | `launch: grid=4 block=64` | also `cluster`, `shared` (bytes), `sms` (of a PE); 1 CTA of 32 threads if left out |
//! | `memory: x 4096 zero` | a symmetric allocation and its contents: `zero`, `iota` (words that differ by PE), `none` |
//! | `args: x x@next x@mc pe` | `NAME` (this PE's), `NAME@next`, `NAME@0` (another's), `NAME@mc` (multicast), `pe`, `pes`, numbers |

use std::collections::BTreeMap;

/// Code and lines, sorted.
pub type Key = (String, Vec<u32>);

/// Something that is to be found.
#[derive(Debug, Default)]
pub struct Expected {
    pub code: String,
    pub labels: Vec<String>,
    pub says: Vec<String>,
    pub denies: Vec<String>,
    /// Whether it is listed behind the one before.
    pub behind: bool,
}

/// A file.
#[derive(Debug)]
pub struct Seeded {
    pub finds: Vec<Expected>,
    pub may: Vec<Expected>,
    pub within: u64,
    pub clean: u64,
    pub pes: Vec<usize>,
    /// Other directives, in their order.
    pub words: Vec<(String, String)>,
    labels: BTreeMap<String, u32>,
    pub broken: String,
    pub mended: String,
}

/// The words that belong to either kind of file.
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
    /// Reads a file; `ptx` or not.
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
        // Line numbers stay what they are.
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

    /// Makes the broken program of the mended one, as the directives say.
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

    /// Code and lines of what is to be found.
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

    /// `a=1 b=2` of all directives of this word.
    pub fn pairs(&self, word: &str) -> Result<Vec<(&str, &str)>, String> {
        let words =
            self.words.iter().filter(|(w, _)| w == word).flat_map(|(_, rest)| rest.split_whitespace());
        words.map(|w| w.split_once('=').ok_or(format!("{word}: `{w}`: expected name=value"))).collect()
    }
}

/// The text of files, one behind the other, without their `use` of each other.
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

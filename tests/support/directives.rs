//! The expectations of a file test, as `// word: ...` comments in the kernel file itself:
//!
//! | directive | meaning |
//! |---|---|
//! | `source: PATH` | the kernel file is at this path, relative to the project's root, instead of this file |
//! | `watch: true` | waits report themselves, like the command's option |
//! | `define: N=100 T=bf16` | values of compile-time parameters |
//! | `lowering: unicast` | the command's option; the default is `multimem` |
//! | `transport: p2p` | the command's option; the default is `auto` |
//! | `arch: sm_100a` | the command's option; the default is `sm_90a` |
//! | `ptx: 8.0` | the requested version of PTX |
//! | `error: E0104 E0107` | the file does not compile, with exactly these errors in this order; `NAME.stderr` has the rendered errors |
//! | `warning: E0230` | the file compiles with exactly these warnings; `NAME.stderr` has the rendered warnings |
//! | `emit: ir` | the text that the following checks search: `ir`, `after:PASS`, `llvm`, `ptx` (the default), `report` |
//! | `check: TEXT` | the text occurs after the place that the previous check found |
//! | `count: 4 TEXT` | the text occurs this number of times |
//! | `not: TEXT` | the text does not occur |
//! | `run: pes=1,2 N=7,1000` | the kernel runs with each combination, and its results are those that `computes(...)` states. Words are `pes`, `node` (the number of PEs of a node: with `transport=auto`, NVSHMEM's functions reach the others), `grid`, `seed`, `launches`, `lowering`, `transport`, `arch`, `waits` (as `--debug-waits`). Other words are compile-time parameters or run-time arguments |
//! | `sequence: a PATH:b` | runs launch these kernels one after the other: a kernel of the file by its name, and a kernel of another file with its path relative to the project's root |
//! | `overlap: true` | for `tests/clean.rs`: the option of `weft check` |
//! | `stdout: TEXT` | the next line that each run prints; a run prints no other lines |
//! | `fails: TEXT` | each run fails with an error that contains the text |

/// All expectations of a file.
#[derive(Debug, Default)]
pub struct Expectations {
    pub source: Option<String>,
    pub lowering: Option<String>,
    pub transport: Option<String>,
    pub arch: Option<String>,
    pub ptx: Option<String>,
    pub defines: Vec<(String, String)>,
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
    pub stages: Vec<Stage>,
    pub runs: Vec<Sweep>,
    pub sequence: Vec<String>,
    pub overlap: bool,
    pub watch: bool,
    pub stdout: Vec<String>,
    pub fails: Option<String>,
}

/// The checks of one stage's text, in order.
#[derive(Debug)]
pub struct Stage {
    pub name: String,
    pub checks: Vec<Check>,
}

/// An expectation of a stage's text.
#[derive(Debug)]
pub enum Check {
    Next(String),
    Count(usize, String),
    Not(String),
}

/// A `run:` line, with the alternatives of each word.
#[derive(Debug)]
pub struct Sweep(pub Vec<(String, Vec<String>)>);

/// A way to run: a value for each word.
pub type Setting = Vec<(String, String)>;

impl Sweep {
    /// Every combination, in which the last word's alternatives change fastest.
    pub fn settings(&self) -> Vec<Setting> {
        self.0.iter().fold(vec![Vec::new()], |settings, (word, values)| {
            let with = |setting: &Setting| -> Vec<Setting> {
                let one = |value: &String| [&setting[..], &[(word.clone(), value.clone())]].concat();
                values.iter().map(one).collect()
            };
            settings.iter().flat_map(with).collect()
        })
    }
}

/// Splits `a=1 b=2` into pairs.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |word: &str| {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: expected name=value"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    text.split_whitespace().map(pair).collect()
}

/// Splits a line `// word: rest`.
fn directive(line: &str) -> Option<(&str, &str)> {
    let (word, rest) = line.trim_start().strip_prefix("//")?.trim_start().split_once(':')?;
    let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
    is_word.then_some((word, rest.trim()))
}

/// Reads the directives of a file.
pub fn parse(text: &str) -> Result<Expectations, String> {
    let mut all = Expectations::default();
    for (number, line) in text.lines().enumerate() {
        if let Some((word, rest)) = directive(line) {
            all.take(word, rest).map_err(|e| format!("line {}: {e}", number + 1))?;
        }
    }
    let expects_nothing =
        all.errors.is_empty() && all.warnings.is_empty() && all.stages.is_empty() && all.runs.is_empty();
    if expects_nothing {
        return Err("nothing is expected: say `// error: ...`, `// check: ...` or `// run: ...`".into());
    }
    let checked = all.stages.iter().any(|stage| !stage.checks.is_empty());
    if !all.errors.is_empty() && (checked || !all.warnings.is_empty() || !all.runs.is_empty()) {
        return Err("what does not compile has no text to check, no warnings and no runs".into());
    }
    if all.runs.is_empty() && !(all.stdout.is_empty() && all.fails.is_none()) {
        return Err("`stdout` and `fails` need a `run`".into());
    }
    Ok(all)
}

impl Expectations {
    fn take(&mut self, word: &str, rest: &str) -> Result<(), String> {
        let text = rest.to_owned();
        match word {
            "source" => self.source = Some(text),
            "lowering" => self.lowering = Some(text),
            "transport" => self.transport = Some(text),
            "arch" => self.arch = Some(text),
            "ptx" => self.ptx = Some(text),
            "define" => self.defines.extend(pairs(rest)?),
            "error" => self.errors.extend(rest.split_whitespace().map(str::to_owned)),
            "warning" => self.warnings.extend(rest.split_whitespace().map(str::to_owned)),
            "emit" => self.stages.push(Stage { name: text, checks: Vec::new() }),
            "check" => self.checks().push(Check::Next(text)),
            "not" => self.checks().push(Check::Not(text)),
            "count" => {
                let (n, text) = rest.split_once(' ').ok_or("expected `count: NUMBER TEXT`")?;
                let n = n.parse().map_err(|e| format!("count: {n}: {e}"))?;
                self.checks().push(Check::Count(n, text.trim().to_owned()));
            }
            "run" => {
                let values =
                    |(name, list): (String, String)| (name, list.split(',').map(str::to_owned).collect());
                self.runs.push(Sweep(pairs(rest)?.into_iter().map(values).collect()));
            }
            "sequence" => self.sequence = rest.split_whitespace().map(str::to_owned).collect(),
            "watch" => self.watch = rest.parse().map_err(|e| format!("watch: {e}"))?,
            "overlap" => self.overlap = rest.parse().map_err(|e| format!("overlap: {e}"))?,
            "stdout" => self.stdout.push(text),
            "fails" => self.fails = Some(text),
            other => return Err(format!("unknown directive `{other}` (a comment must not begin like one)")),
        }
        Ok(())
    }

    fn checks(&mut self) -> &mut Vec<Check> {
        if self.stages.is_empty() {
            self.stages.push(Stage { name: "ptx".into(), checks: Vec::new() });
        }
        let last = self.stages.len() - 1;
        &mut self.stages[last].checks
    }
}

impl Stage {
    /// Compares a text with the checks.
    pub fn check(&self, text: &str) -> Result<(), String> {
        let mut from = 0;
        let failed = |what: String| Err(format!("{what} in {}:\n{text}", self.name));
        for check in &self.checks {
            match check {
                Check::Next(wanted) => match text[from..].find(wanted) {
                    Some(at) => from += at + wanted.len(),
                    None if text.contains(wanted) => {
                        return failed(format!("`{wanted}` stands only before the check before it"));
                    }
                    None => return failed(format!("no `{wanted}`")),
                },
                Check::Not(unwanted) if text.contains(unwanted) => {
                    return failed(format!("unwanted `{unwanted}`"));
                }
                Check::Not(_) => {}
                Check::Count(n, wanted) => {
                    let found = text.matches(wanted).count();
                    if found != *n {
                        return failed(format!("{found} times `{wanted}`, not {n},"));
                    }
                }
            }
        }
        Ok(())
    }
}

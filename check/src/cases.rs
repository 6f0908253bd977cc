//! The cases of a check: kernels, lowerings, sizes, and numbers of PEs and of nodes.

use super::finding::{self, Finding, Replay, values};
use super::{CheckOptions, Progress, Variant};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use weft::{KernelFile, Lowering, Options};
use weft_ir::Scalar;
use weft_lang::elaborate::{Define, Head, HeadParam};
use weft_lang::source::SourceMap;
use weft_run::examine::Subject;
use weft_run::reference::Checked;
use weft_run::{Arg, RunError, RunOptions, Stage};
use weft_sim::{CodeLocation, Trace, TraceConfig};

/// The largest size of the tensors in bytes for each requested element, PE, and PE with a part of
/// the memory, if the check chooses the sizes.
const BYTES_OF_ELEMENT: u64 = 64;

/// The largest number of modes for which a parameter is assumed to be the extent.
const MODES: usize = 3;

/// One way to run kernels, for any seed.
pub(super) struct Case {
    subject: Arc<Subject>,
    options: RunOptions,
    names: Arc<Names>,
    sources: Arc<SourceMap>,
}

/// The names of the kernels of a case.
struct Names {
    /// The names of the kernels, such as `produce, consume`.
    kernels: String,
    /// For a sequence, its form on the command line: `a.weft:produce b.weft:consume`.
    sequence: Option<String>,
    /// The file of each kernel.
    files: Vec<String>,
    /// The option for the folder of `use`, if it was given.
    root: Option<String>,
}

impl Case {
    /// Runs the case, and returns the findings, each with its replay.
    pub fn run(&self, seed: u64) -> Result<Vec<Finding>, RunError> {
        let options = self.with(seed);
        let examined = self.subject.run(&options)?;
        let replay = Replay { seed, ..self.replay() };
        let locate = |place: &CodeLocation| self.subject.span(place, &self.sources);
        let mut found = finding::of(examined.findings, examined.error, &locate, &replay);
        let mut launches = vec![0; self.names.files.len()];
        for (number, checked) in &examined.checks {
            launches[*number] += 1;
            let kernel = self.subject.stages().nth(*number).filter(|_| self.names.sequence.is_some());
            let of = kernel.map(|stage| format!(" of `{}`", stage.kernel)).unwrap_or_default();
            let when = format!("launch {}{of}", launches[*number]);
            found.extend(finding::wrong(checked, &examined.tensors, "computes(...)", &when, &replay));
        }
        let last = |(file, checked): &(String, Checked)| {
            finding::wrong(checked, &examined.tensors, file, "the last launch", &replay)
        };
        found.extend(examined.expected.iter().filter_map(last));
        Ok(found)
    }

    /// Runs the case and returns its timeline.
    pub fn trace(&self, seed: u64) -> Result<Trace, RunError> {
        let trace = Some(TraceConfig::default());
        Ok(self.subject.run(&self.with(seed).trace(trace))?.trace)
    }

    fn with(&self, seed: u64) -> RunOptions {
        // In every second schedule, PEs can run ahead into the next launch, as on streams. A kernel
        // without a barrier over the PEs relies on the host for synchronisation, unless the options
        // say otherwise.
        let apart = self.options.back_to_back || self.subject.meets();
        let back_to_back = self.options.launches > 1 && seed % 2 == 1 && apart;
        self.options.clone().seed(seed).back_to_back(back_to_back)
    }

    /// The option for the tolerance, if it was given.
    fn tolerance(&self) -> Option<String> {
        self.options.tolerance.map(|t| format!(" --tolerance {},{}", t.relative, t.absolute))
    }

    /// The parameters that reproduce the case.
    pub fn replay(&self) -> Replay {
        let RunOptions { compile, n_pes, grid, seed, launches, back_to_back, args, node, .. } = &self.options;
        let files = [("input", &self.options.inputs), ("expect", &self.options.expected)];
        let files = files.iter().flat_map(|(option, files)| files.iter().map(move |file| (option, file)));
        let file = |(option, (tensor, path)): (&&str, &(String, PathBuf))| {
            let equals = if tensor.is_empty() { "" } else { "=" };
            format!(" --{option} {tensor}{equals}{}", path.display())
        };
        Replay {
            kernel: self.names.kernels.clone(),
            sequence: self.names.sequence.clone(),
            files: files.map(file).chain(self.tolerance()).chain(self.names.root.clone()).collect(),
            pes: *n_pes,
            seed: *seed,
            defines: compile.defines.clone(),
            args: args.clone(),
            lowering: compile.lowering,
            transport: compile.transport,
            node: *node,
            grid: *grid,
            launches: *launches,
            overlap: *back_to_back,
            ptx: None,
        }
    }
}

/// The PTX of the cases, each once.
pub(super) fn variants(cases: &[Case]) -> Vec<Variant> {
    let mut variants: Vec<Variant> = Vec::new();
    for case in cases {
        let chosen = case.replay().variant_options();
        for (stage, file) in case.subject.stages().zip(&case.names.files) {
            let external = if stage.compiled.external().is_empty() { "" } else { " --nvshmem extern" };
            let defines = values("-D", &stage.options.defines);
            let options = format!("--kernel {}{defines}{chosen}{external}", stage.kernel);
            if !variants.iter().any(|v| v.options == options && v.file == *file) {
                variants.push(Variant { file: file.clone(), options, ptx: stage.compiled.ptx.clone() });
            }
        }
    }
    variants
}

/// All cases of each kernel of a file, or of the kernel that the options name, with small ones
/// first. `progress` is called for compiled kernels.
pub(super) fn of_file(
    file: &KernelFile,
    options: &CheckOptions,
    progress: &dyn Fn(Progress),
) -> Result<Vec<Case>, RunError> {
    let named = options.compile.kernel.as_deref();
    let mut heads = file.heads();
    let names: Vec<_> = heads.iter().map(|h| h.name.to_string()).collect();
    heads.retain(|h| named.is_none_or(|n| n == &*h.name));
    if heads.is_empty() {
        return bad(&match named {
            Some(n) => format!("there is no kernel `{n}`; there are: {}", names.join(", ")),
            None => "the file has no kernel".to_owned(),
        });
    }
    let mut cases = Vec::new();
    for head in heads {
        let name = file.sources().name(0).unwrap_or_default().to_owned();
        let names =
            Names { kernels: head.name.to_string(), sequence: None, files: vec![name], root: root(options) };
        let sources = file.shared_sources();
        cases.append(&mut Planner::cases_of(vec![file], vec![head], names, sources, (options, progress))?);
    }
    Ok(cases)
}

/// All cases of a sequence, with small ones first; `sources` has the texts of all its kernels.
pub(super) fn of_sequence(
    stages: &[Stage<'_>],
    sources: Arc<SourceMap>,
    options: &CheckOptions,
    progress: &dyn Fn(Progress),
) -> Result<Vec<Case>, RunError> {
    let heads = stages.iter().map(Stage::head).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<_> =
        stages.iter().map(|s| s.file.sources().name(0).unwrap_or_default().to_owned()).collect();
    let list = |names: Vec<String>, between: &str| names.join(between);
    let names = Names {
        kernels: list(heads.iter().map(|h| h.name.to_string()).collect(), ", "),
        sequence: Some(list(files.iter().zip(&heads).map(|(f, h)| format!("{f}:{}", h.name)).collect(), " ")),
        files,
        root: root(options),
    };
    let files = stages.iter().map(|s| s.file).collect();
    Planner::cases_of(files, heads, names, sources, (options, progress))
}

fn root(options: &CheckOptions) -> Option<String> {
    options.root.as_ref().map(|folder| format!(" --root {}", folder.display()))
}

fn bad<T>(message: &str) -> Result<T, RunError> {
    Err(RunError::Request(message.to_owned()))
}

/// The values of compile-time and run-time parameters that are sizes.
type Sizes = (BTreeMap<String, Define>, BTreeMap<String, Arg>);

/// Compiles the kernels, each variant once.
struct Planner<'a> {
    /// The file and the head of each kernel.
    files: Vec<&'a KernelFile>,
    heads: Vec<Head>,
    names: Arc<Names>,
    sources: Arc<SourceMap>,
    options: &'a CheckOptions,
    subjects: HashMap<String, Arc<Subject>>,
    /// The number of kernels, or of sequences of kernels, that were compiled so far, and the
    /// callback for it.
    compiled: u64,
    progress: &'a dyn Fn(Progress),
}

impl<'a> Planner<'a> {
    fn cases_of(
        files: Vec<&'a KernelFile>,
        heads: Vec<Head>,
        names: Names,
        sources: Arc<SourceMap>,
        (options, progress): (&'a CheckOptions, &'a dyn Fn(Progress)),
    ) -> Result<Vec<Case>, RunError> {
        let (names, subjects) = (Arc::new(names), HashMap::new());
        Planner { files, heads, names, sources, options, subjects, compiled: 0, progress }.cases()
    }

    fn cases(&mut self) -> Result<Vec<Case>, RunError> {
        let options = self.options;
        if options.pes.is_empty() || options.pes.contains(&0) || options.seeds == 0 || options.launches == 0 {
            return bad("a check needs at least 1 PE, 1 seed and 1 launch");
        }
        let names = self.free_extents();
        let mut cases = Vec::new();
        for &n_pes in &self.options.pes {
            for sizes in self.sizes(&names, n_pes)? {
                cases.append(&mut self.variants(&sizes, n_pes)?);
            }
        }
        Ok(cases)
    }

    /// The compile-time parameters of all kernels: the name, the bound, and whether there is a
    /// default.
    fn generics(&self) -> impl Iterator<Item = &(Arc<str>, Arc<str>, bool)> {
        self.heads.iter().flat_map(|h| &h.generics)
    }

    /// The run-time parameters of all kernels.
    fn params(&self) -> impl Iterator<Item = &HeadParam> {
        self.heads.iter().flat_map(|h| &h.params)
    }

    /// The integer parameters without a value that are extents of tensors, or may be (those without
    /// a default).
    fn free_extents(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let extents = self.params().flat_map(|p| &p.extents).flatten();
        let others = self.generics().filter(|(.., has_default)| !has_default).map(|(name, ..)| name);
        for name in extents.chain(others) {
            let given =
                self.options.compile.defines.contains_key(&**name) || self.options.args.contains_key(&**name);
            let generic = self.generics().any(|(g, bound, _)| g == name && &**bound == "int");
            let scalar = self.params().any(|p| p.name == *name);
            if !given && (generic || scalar) && !names.contains(&name.to_string()) {
                names.push(name.to_string());
            }
        }
        names
    }

    /// Assigns a size to these parameters, and an element type if one must be given.
    fn assign(&self, names: &[String], size: i64) -> Sizes {
        let mut defines = self.options.compile.defines.clone();
        let mut args = self.options.args.clone();
        for (name, bound, has_default) in self.generics() {
            let usual = match &**bound {
                "dtype" | "float" | "real" => Define::Dtype(Scalar::F32),
                "integer" => Define::Dtype(Scalar::I32),
                "bool" => Define::Bool(false),
                "reduction" => Define::Reduction(weft_ir::RedOp::Add),
                _ => continue,
            };
            if !has_default {
                defines.entry(name.to_string()).or_insert(usual);
            }
        }
        for name in names {
            if self.generics().any(|(g, ..)| **g == **name) {
                defines.insert(name.clone(), Define::Int(size));
            }
            if self.params().any(|p| *p.name == **name) {
                args.insert(name.clone(), Define::Int(size).into());
            }
        }
        (defines, args)
    }

    /// The sizes that are run on this number of PEs.
    fn sizes(&mut self, names: &[String], n_pes: usize) -> Result<Vec<Sizes>, RunError> {
        if names.is_empty() {
            return Ok(vec![self.assign(names, 0)]);
        }
        // Of several parameters with a default, the first is most likely a size, and others are
        // tiles and numbers of CTAs.
        let has_default = |n: &String| self.generics().any(|(g, _, has)| **g == **n && *has);
        let first = names.iter().find(|n| has_default(n));
        let few: Vec<_> = names.iter().filter(|n| !has_default(n) || first == Some(n)).cloned().collect();
        if !self.options.sizes.is_empty() {
            return Ok(self.options.sizes.iter().map(|n| self.assign(&few, *n)).collect());
        }
        let mut chosen: Vec<Sizes> = Vec::new();
        for elements in [1u32, 1003, 5003] {
            let found = self.near(&few, elements, n_pes).or_else(|| self.near(names, elements, n_pes));
            chosen.extend(found.filter(|sizes| !chosen.contains(sizes)));
        }
        if chosen.is_empty() {
            // Use the kernel's own sizes, or return the error.
            let own = self.assign(&[], 0);
            self.fits(&own, n_pes)?;
            chosen.push(own);
        }
        Ok(chosen)
    }

    /// Sizes that the kernel accepts, with which a tensor has about this number of elements.
    fn near(&mut self, names: &[String], elements: u32, n_pes: usize) -> Option<Sizes> {
        let free =
            |p: &HeadParam| p.extents.iter().flatten().filter(|e| names.contains(&e.to_string())).count();
        let modes = self.params().map(free).max().unwrap_or(1).max(1);
        let bytes = u64::from(elements.max(1003)) * BYTES_OF_ELEMENT * (n_pes * (n_pes + 1)) as u64;
        // With several modes, each gets the corresponding root.
        let root = |modes: usize| f64::from(elements).powf(1.0 / modes as f64).round() as i64;
        let all = (modes..=MODES.max(modes)).flat_map(|modes| candidates(root(modes), n_pes as i64));
        let mut all = all.map(|n| self.assign(names, n)).collect::<Vec<_>>().into_iter();
        // Compile and allocate only for sizes that are not too large from the start.
        all.find(|sizes| {
            let options = self.run_options(sizes, n_pes, self.options.compile.lowering);
            let least = Subject::min_bytes(&self.stages(), &options);
            least.is_ok_and(|b| b <= bytes) && self.fits(sizes, n_pes).is_ok_and(|b| b <= bytes)
        })
    }

    /// Checks whether the kernel accepts these sizes, and returns the size of all tensors in bytes.
    fn fits(&mut self, sizes: &Sizes, n_pes: usize) -> Result<u64, RunError> {
        let options = self.run_options(sizes, n_pes, self.options.compile.lowering);
        self.subject(&options)?.fits(&options)
    }

    /// Every lowering that is not fixed and changes the PTX, each with every size of node that
    /// changes what runs.
    fn variants(&mut self, sizes: &Sizes, n_pes: usize) -> Result<Vec<Case>, RunError> {
        let lowerings = match self.options.compile.lowering {
            Lowering::Auto => &[Lowering::Multimem, Lowering::Unicast][..],
            ref given => std::slice::from_ref(given),
        };
        let mut cases: Vec<Case> = Vec::new();
        let mut refused = None;
        for &lowering in lowerings {
            let options = self.run_options(sizes, n_pes, lowering);
            match self.subject(&options) {
                // Some operations do not have every lowering.
                Err(RunError::Compile(e)) => refused = Some(e),
                Err(e) => return Err(e),
                Ok(subject) if cases.iter().any(|c| c.subject.same_code(&subject)) => {}
                Ok(subject) => cases.extend(self.nodes(&subject, n_pes).into_iter().map(|node| {
                    let (subject, options) = (subject.clone(), options.clone().node(node));
                    Case { subject, options, names: self.names.clone(), sources: self.sources.clone() }
                })),
            }
        }
        match refused {
            Some(e) if cases.is_empty() => Err(e.into()),
            _ => Ok(cases),
        }
    }

    /// The sizes of nodes that a kernel is run with: a node for each PE, two nodes, and one node of all PEs. One size is
    /// enough for a kernel that does not test which PEs it reaches.
    fn nodes(&self, subject: &Subject, n_pes: usize) -> Vec<Option<u32>> {
        if !subject.tests_reach() {
            return vec![None];
        }
        let all = n_pes as u32;
        let chosen = [1, all.div_ceil(2), all];
        let given = if self.options.nodes.is_empty() { &chosen[..] } else { &self.options.nodes };
        let mut nodes: Vec<u32> = given.iter().map(|n| (*n).clamp(1, all)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.into_iter().map(Some).collect()
    }

    fn run_options(&self, (defines, args): &Sizes, n_pes: usize, lowering: Lowering) -> RunOptions {
        let mut compile = self.options.compile.clone();
        compile.defines.clone_from(defines);
        compile.lowering = lowering;
        let mut options = RunOptions::new(compile, n_pes);
        options.args.clone_from(args);
        options.grid = self.options.grid;
        options.inputs.clone_from(&self.options.inputs);
        options.expected.clone_from(&self.options.expected);
        options.tolerance = self.options.tolerance;
        options.launches = self.options.launches;
        options.back_to_back = self.options.overlap;
        options.step_limit = self.options.step_limit;
        options.time_limit = self.options.time_limit;
        options.stop.clone_from(&self.options.stop);
        options.check = Some(weft_sim::Check::default());
        options
    }

    fn subject(&mut self, options: &RunOptions) -> Result<Arc<Subject>, RunError> {
        let Options { lowering, ref defines, .. } = options.compile;
        let key = format!("{lowering:?} {defines:?} {:?}", options.args);
        if let Some(subject) = self.subjects.get(&key) {
            return Ok(subject.clone());
        }
        let subject = Arc::new(Subject::new(&self.stages(), options)?);
        self.subjects.insert(key, subject.clone());
        self.compiled += 1;
        (self.progress)(Progress { done: 0, total: 0, met: 0, compiled: self.compiled });
        Ok(subject)
    }

    fn stages(&self) -> Vec<Stage<'_>> {
        let stages = self.files.iter().zip(&self.heads);
        stages.map(|(file, head)| Stage { file, kernel: Some(&*head.name) }).collect()
    }
}

/// The sizes from `target` on that a kernel may accept: that one, the next one, then multiples of
/// powers of two and of the number of PEs, with odd factors if possible.
fn candidates(target: i64, n_pes: i64) -> Vec<i64> {
    let mut out = vec![target, target + 3];
    for power in 0..=12 {
        for step in [1 << power, (1 << power) * n_pes] {
            let times = (target + step - 1) / step;
            out.push(step * (times | 1));
        }
    }
    let mut seen = std::collections::HashSet::new();
    out.retain(|n| *n > 0 && seen.insert(*n));
    out
}

//! Kernel files: from text to PTX.

use crate::error::Fault;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft::lang::render::{Color, render};
use weft::library::Files;
use weft::{Define, Defines, KernelFile, Lowering, OptLevel, Options, Target, Transport};

/// The arguments that every compiling function takes from Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Request {
    /// The name of the text in messages.
    name: String,
    text: String,
    root: Option<PathBuf>,
    arch: String,
    kernel: Option<String>,
    lowering: String,
    transport: String,
    opt: u8,
    debug_waits: Option<u64>,
    asserts: bool,
    watch: bool,
}

/// The value of a word in a table, or an error that lists the words.
pub fn word<T: Copy>(what: &str, asked: &str, table: &[(&str, T)]) -> Result<T, Fault> {
    let found = table.iter().find(|(word, _)| *word == asked).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let words: Vec<_> = table.iter().map(|(word, _)| format!("{word:?}")).collect();
        Fault::usage(format!("{what} is {asked:?}"), format!("pass one of {}", words.join(", ")))
    })
}

/// The values of compile-time parameters.
fn defines(given: &Bound<'_, PyDict>) -> PyResult<Defines> {
    let mut all = Defines::new();
    for (name, value) in given {
        let define = if let Ok(b) = value.cast::<PyBool>() {
            Some(Define::Bool(b.is_true()))
        } else if value.is_instance_of::<PyInt>() {
            Some(Define::Int(value.extract()?))
        } else if value.is_instance_of::<PyFloat>() {
            Some(Define::Float(value.extract()?))
        } else if let Ok(text) = value.cast::<PyString>() {
            Define::parse(&text.to_cow()?)
        } else {
            None
        };
        let define = define.ok_or_else(|| {
            let shown = value.repr().map_or_else(|_| "?".into(), |r| r.to_string());
            PyTypeError::new_err(format!(
                "the compile-time parameter {name} is {shown}; it is an int, a float, a bool, or the name of a type or reduction \
                 such as \"bf16\" or \"add\""
            ))
        })?;
        all.insert(name.extract()?, define);
    }
    Ok(all)
}

impl Request {
    pub fn options(&self, given: &Bound<'_, PyDict>) -> PyResult<Options> {
        let target: Target = self.arch.parse().map_err(|e| Fault::usage(format!("{e}"), ""))?;
        let mut options = Options::new(target);
        let lowerings =
            [("auto", Lowering::Auto), ("multimem", Lowering::Multimem), ("unicast", Lowering::Unicast)];
        let transports =
            [("auto", Transport::Auto), ("nvshmem", Transport::Nvshmem), ("p2p", Transport::P2p)];
        options.lowering = word("lowering", &self.lowering, &lowerings)?;
        options.transport = word("transport", &self.transport, &transports)?;
        let levels = [OptLevel::O0, OptLevel::O1, OptLevel::O2, OptLevel::O3];
        options.opt =
            *levels.get(usize::from(self.opt)).ok_or_else(|| Fault::usage("opt must be 0 to 3", ""))?;
        options.kernel.clone_from(&self.kernel);
        options.debug_waits = self.debug_waits;
        options.asserts = self.asserts;
        options.watch = self.watch;
        options.defines = defines(given)?;
        Ok(options)
    }

    pub fn parse(&self) -> Result<KernelFile, Fault> {
        let files = match &self.root {
            Some(root) => Files::below(root),
            None => Files::beside(Path::new(&self.name)),
        };
        Ok(KernelFile::parse_with(&self.name, &self.text, &files)?)
    }
}

/// A compiled kernel file.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Compiled {
    compiled: weft::Compiled,
    pub file: Arc<KernelFile>,
    pub options: Options,
}

/// Compiles a kernel file.
#[pyfunction]
pub fn compile(py: Python<'_>, request: Request, defines: &Bound<'_, PyDict>) -> PyResult<Compiled> {
    let options = request.options(defines)?.keep_ir(true);
    py.detach(|| {
        let file = request.parse()?;
        let compiled = file.compile(&options).map_err(Fault::from)?;
        Ok(Compiled { compiled, file: Arc::new(file), options })
    })
}

/// The explanation of an error code, as in `weft explain`; None for an unknown code.
#[pyfunction]
pub fn explain_code(code: &str) -> Option<String> {
    let page = weft::codes::Page::find(code)?;
    Some(format!("{}: {}\n\n{}", page.code, page.title, page.explanation))
}

#[pymethods]
impl Compiled {
    /// The PTX of its kernels.
    #[getter]
    fn ptx(&self) -> &str {
        &self.compiled.ptx
    }

    /// The IR before the passes, as text.
    #[getter]
    fn ir(&self) -> &str {
        self.compiled.ir.as_deref().unwrap_or_default()
    }

    /// The architecture that it was compiled for.
    #[getter]
    fn arch(&self) -> String {
        self.compiled.target.to_string()
    }

    /// The text of the kernel file.
    #[getter]
    fn source(&self) -> &str {
        self.file.sources().text(0).unwrap_or_default()
    }

    /// The warnings, with their places in the text; empty if there are none.
    #[getter]
    fn warnings(&self) -> String {
        match self.compiled.warnings.is_empty() {
            true => String::new(),
            false => render(&self.compiled.warnings, self.compiled.sources(), Color::Never),
        }
    }

    /// The metadata that a launch needs, as JSON.
    #[getter]
    fn meta(&self) -> PyResult<String> {
        let info = self.compiled.describe().map_err(|d| Fault::new("", d.message, ""))?;
        Ok(serde_json::to_string(&info).map_err(|e| Fault::new("", e.to_string(), ""))?)
    }

    /// The values of each kernel's compile-time parameters, as pairs of name and text.
    #[getter]
    fn defines(&self) -> Vec<Vec<(String, String)>> {
        let shown =
            |d: &Defines| d.iter().map(|(n, v)| (n.clone(), weft_run::Arg::from(*v).to_string())).collect();
        self.compiled.defines.iter().map(shown).collect()
    }

    /// The seconds that each stage took, in order.
    #[getter]
    fn timings(&self) -> Vec<(String, f64)> {
        self.compiled.timings.iter().map(|(name, t)| (name.clone(), t.as_secs_f64())).collect()
    }

    /// Explains the use of each tensor and how each access was compiled.
    fn explain(&self) -> String {
        self.compiled.explain()
    }
}

//! Errors of every crate as Python's exceptions, which `warpweft/_errors.py` makes.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::cell::RefCell;
use weft::CompileError;
use weft::gpu::GpuError;
use weft::lang::render::Color;
use weft::runtime;
use weft_run::RunError;

thread_local! {
    /// The exception that a signal handler raised while this thread waited.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Whether Python has a signal to handle in this thread, such as Ctrl-C.
pub fn interrupted() -> bool {
    let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
    let any = raised.is_some();
    if any {
        RAISED.with(|slot| *slot.borrow_mut() = raised);
    }
    any
}

/// Takes the exception that [`interrupted`] stored in this thread.
pub fn take_raised() -> Option<PyErr> {
    RAISED.with(|slot| slot.borrow_mut().take())
}

/// An error that will be raised as a Python exception.
#[derive(Debug)]
pub struct Fault(Box<FaultDetails>);

#[derive(Debug, Default)]
struct FaultDetails {
    code: String,
    message: String,
    help: String,
    /// The message with an excerpt of the kernel's source, if the error is in the source.
    rendered: Option<String>,
    /// An exception that Python has raised, which is passed on unchanged.
    raised: Option<PyErr>,
}

impl Fault {
    /// An error in the caller's arguments (`W0001`).
    pub fn usage(message: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault::new("W0001", message, help)
    }

    pub fn new(code: &str, message: impl Into<String>, help: impl Into<String>) -> Fault {
        let (code, message, help) = (code.into(), message.into(), help.into());
        Fault(Box::new(FaultDetails { code, message, help, ..FaultDetails::default() }))
    }
}

impl From<PyErr> for Fault {
    fn from(e: PyErr) -> Fault {
        Fault(Box::new(FaultDetails { raised: Some(e), ..FaultDetails::default() }))
    }
}

impl From<runtime::Error> for Fault {
    fn from(e: runtime::Error) -> Fault {
        let raised = match e.code == runtime::error::INTERRUPTED {
            true => take_raised(),
            false => None,
        };
        let mut fault = Fault::new(&e.code.to_string(), e.message, e.help);
        fault.0.raised = raised;
        fault
    }
}

impl From<CompileError> for Fault {
    fn from(e: CompileError) -> Fault {
        let rendered = e.render(Color::Never).trim_end().to_owned();
        let first = e.diagnostics.first();
        let code = first.map(|d| d.code.to_string()).unwrap_or_default();
        let message = first.map_or_else(|| rendered.clone(), |d| d.message.clone());
        let help = first.and_then(|d| d.help.clone()).unwrap_or_default();
        let mut fault = Fault::new(&code, message, help);
        fault.0.rendered = Some(rendered);
        fault
    }
}

/// An error of which only the text is known: `error[S001]: message`, and perhaps `help: ...` in a
/// line of its own.
fn shown(e: &impl std::fmt::Display) -> Fault {
    let text = e.to_string();
    let (code, rest) = match text.strip_prefix("error[").and_then(|rest| rest.split_once("]: ")) {
        Some((code, rest)) => (code.to_owned(), rest.to_owned()),
        None => (String::new(), text.clone()),
    };
    let (message, help) = match rest.split_once("\n  help: ") {
        Some((message, help)) => (message.to_owned(), help.to_owned()),
        None => (rest, String::new()),
    };
    Fault::new(&code, message, help)
}

/// An error of the package's own class with this code.
fn coded(code: &str, e: &impl std::fmt::Display) -> Fault {
    let mut fault = shown(e);
    fault.0.code = code.to_owned();
    fault
}

impl From<GpuError> for Fault {
    fn from(e: GpuError) -> Fault {
        match e {
            GpuError::Compile(e) => e.into(),
            GpuError::Runtime(e) => e.into(),
            other => shown(&other),
        }
    }
}

impl From<RunError> for Fault {
    fn from(e: RunError) -> Fault {
        match e {
            RunError::Compile(e) => e.into(),
            RunError::Runtime(e) => e.into(),
            other => shown(&other),
        }
    }
}

impl From<warpweft_comm::Error> for Fault {
    fn from(e: warpweft_comm::Error) -> Fault {
        use warpweft_comm::Error;
        match e {
            Error::Runtime(e) => e.into(),
            Error::Gpu(e) => e.into(),
            Error::TooLarge { .. } => coded("W0002", &e),
            Error::Unaligned { .. } => coded("W0003", &e),
            other => shown(&other),
        }
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> PyErr {
        let FaultDetails { code, message, help, rendered, raised } = *fault.0;
        if let Some(raised) = raised {
            return raised;
        }
        Python::attach(|py| {
            let make = py.import("warpweft._errors").and_then(|m| m.getattr("make"));
            match make.and_then(|make| make.call1((&code, &message, &help, rendered))) {
                Ok(made) => PyErr::from_value(made),
                // The package is installed only in part.
                Err(_) => PyRuntimeError::new_err(format!("error[{code}]: {message}\n  help: {help}")),
            }
        })
    }
}

//! NVIDIA's linker of device code as a library that is opened at run time. It links a kernel's PTX
//! with relocatable objects to a cubin in the process. [`sys`] has the raw functions, and `result`
//! a `Result` for every call. It needs neither a GPU nor a driver.

mod result;
pub mod sys;

use crate::error::{Error, JITLINK, Result};
use crate::find::{self, Found};
use result::Library;
use std::sync::OnceLock;

/// The nvJitLink library, opened in this process.
pub struct JitLink {
    found: Found,
    library: Library,
}

/// One of the inputs that are linked.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The PTX, with its name in messages and its text.
    Ptx(&'a str, &'a str),
    /// A relocatable object (a cubin of ptxas with `--compile-only`): its name in messages, and its
    /// contents.
    Object(&'a str, &'a [u8]),
}

impl JitLink {
    /// Returns the linker of this machine, which is looked for and opened once in a process.
    ///
    /// # Errors
    /// Fails if the library is not found (R0107). The message lists every place searched.
    pub fn get() -> Result<&'static JitLink> {
        static LIBRARY: OnceLock<Result<JitLink>> = OnceLock::new();
        LIBRARY.get_or_init(|| JitLink::open(find::nvjitlink()?)).as_ref().map_err(Clone::clone)
    }

    /// Opens the library at the found path.
    ///
    /// # Errors
    /// Fails if it is not nvJitLink (R0107).
    pub fn open(found: Found) -> Result<JitLink> {
        let library = Library::open(&found.path)?;
        Ok(JitLink { found, library })
    }

    /// The place where the library was found.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Returns the major and minor version, which are those of its CUDA toolkit.
    pub fn version(&self) -> (u32, u32) {
        self.library.version
    }

    /// Links inputs to a cubin for a target such as `sm_90a`. PTX is assembled first, with at most
    /// `registers` registers for each thread.
    ///
    /// # Errors
    /// Fails with the library's message (R0108) if PTX does not compile, if a symbol is undefined, or if an
    /// object is of a later CUDA than the library.
    pub fn link(&self, target: &str, registers: Option<u32>, inputs: &[Input<'_>]) -> Result<Vec<u8>> {
        self.link_with_log(target, registers, inputs).map(|(cubin, _)| cubin)
    }

    /// Links like [`link`](JitLink::link), and also returns the library's messages about the PTX
    /// that it assembles.
    ///
    /// # Errors
    /// Fails where [`link`](JitLink::link) fails.
    pub fn link_with_log(
        &self,
        target: &str,
        registers: Option<u32>,
        inputs: &[Input<'_>],
    ) -> Result<(Vec<u8>, String)> {
        let (major, minor) = self.version();
        if since(target).is_none_or(|since| self.version() < since) {
            let message =
                format!("{} of CUDA {major}.{minor} does not support {target}", self.found.path.display());
            return Err(Error::new(JITLINK, message).help("`weft setup --force` fetches the newest"));
        }
        let arch = format!("-arch={target}");
        let limit = registers.map(|n| format!("-maxrregcount={n}"));
        let options: Vec<_> = [&*arch, "-lineinfo", "-verbose"].into_iter().chain(limit.as_deref()).collect();
        let mut link = self.library.create(&options)?;
        for input in inputs {
            match input {
                Input::Ptx(name, text) => {
                    link.add(sys::PTX, [text.as_bytes(), &[0]].concat().into(), name)?;
                }
                Input::Object(name, object) => link.add(sys::CUBIN, (*object).into(), name)?,
            }
        }
        let cubin = link.complete()?;
        Ok((cubin, link.remarks()))
    }
}

/// The first CUDA toolkit with a target. It is checked here, since the library crashes on an
/// unknown target.
fn since(target: &str) -> Option<(u32, u32)> {
    const FIRST: [(&str, (u32, u32)); 7] = [
        ("90", (12, 0)),
        ("100", (12, 8)),
        ("120", (12, 8)),
        ("103", (12, 9)),
        ("121", (12, 9)),
        ("110", (13, 0)),
        ("107", (13, 4)),
    ];
    let name = target.strip_prefix("sm_")?;
    let number = name.strip_suffix(['a', 'f']).unwrap_or(name);
    let (_, since) = FIRST.iter().find(|(n, _)| *n == number)?;
    // Family targets came with 12.9.
    Some(if name.ends_with('f') { (12, 9).max(*since) } else { *since })
}

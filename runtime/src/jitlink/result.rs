//! The calls of nvJitLink with a `Result`.
#![allow(unsafe_code, reason = "calls of a C library")]

use super::sys::{self, Functions, Handle};
use crate::error::{Error, JITLINK, NO_JITLINK, Result};
use std::borrow::Cow;
use std::ffi::{CString, c_char, c_int};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::null_mut;

/// The library that was opened. It stays loaded, because it has threads.
pub struct Library {
    functions: Functions,
    _library: ManuallyDrop<libloading::Library>,
    pub version: (u32, u32),
}

/// A link that has begun.
pub struct Link<'a> {
    functions: &'a Functions,
    handle: Handle,
    /// Names and contents, which the library reads until the link is destroyed.
    inputs: Vec<(CString, Cow<'a, [u8]>)>,
}

impl Library {
    pub fn open(path: &Path) -> Result<Library> {
        let fails = |why: String| Error::new(NO_JITLINK, format!("{}: {why}", path.display()));
        // SAFETY: loading runs the initialisers of a library that the user names or the system has, which set up
        // tables.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| fails(e.to_string()))?;
        let library = ManuallyDrop::new(library);
        // SAFETY: `ManuallyDrop` keeps it loaded for the life of the process; in a library that is
        // not nvJitLink, the first function is missing.
        unsafe {
            let version = sys::version(&library);
            let functions = Functions::load(&library, version);
            let functions = functions.map_err(|name| fails(format!("the library has no function {name}")))?;
            Ok(Library { functions, _library: library, version })
        }
    }

    pub fn create<'a>(&'a self, options: &[&str]) -> Result<Link<'a>> {
        let options: Vec<_> = options.iter().filter_map(|option| CString::new(*option).ok()).collect();
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let mut link = Link { functions: &self.functions, handle: null_mut(), inputs: Vec::new() };
        let n = u32::try_from(pointers.len()).unwrap_or(0);
        // SAFETY: the options are C strings that outlive the call; the handle is a local's.
        let status = unsafe { (self.functions.create)(&mut link.handle, n, pointers.as_ptr()) };
        if status != 0 {
            // The value after a failed call is not a handle.
            link.handle = null_mut();
        }
        link.check("nvJitLinkCreate", status).map(|()| link)
    }
}

impl<'a> Link<'a> {
    /// Adds an input. `kind` is a constant of [`sys`]; PTX ends in 0.
    pub fn add(&mut self, kind: c_int, data: Cow<'a, [u8]>, name: &str) -> Result<()> {
        self.inputs.push((CString::new(name).unwrap_or_default(), data));
        let Some((name, data)) = self.inputs.last() else { return Ok(()) };
        // SAFETY: the handle is valid. The library keeps the name's address, and `inputs` keeps the name and the data in
        // their place until the handle is destroyed.
        let status = unsafe {
            (self.functions.add_data)(self.handle, kind, data.as_ptr().cast(), data.len(), name.as_ptr())
        };
        self.check("nvJitLinkAddData", status)
    }

    pub fn complete(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the handle is valid; the size is a local's, and the buffer has that many bytes.
        unsafe {
            self.check("nvJitLinkComplete", (self.functions.complete)(self.handle))?;
            let status = (self.functions.cubin_size)(self.handle, &mut size);
            self.check("nvJitLinkGetLinkedCubinSize", status)?;
            let mut cubin = vec![0; size];
            let status = (self.functions.cubin)(self.handle, cubin.as_mut_ptr().cast());
            self.check("nvJitLinkGetLinkedCubin", status)?;
            Ok(cubin)
        }
    }

    fn check(&self, call: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let meaning = usize::try_from(status).ok().and_then(|n| sys::RESULTS.get(n)).unwrap_or(&"unknown");
        let message = format!("{call} returned {status} ({meaning}) {}", self.log());
        Err(Error::new(JITLINK, message.trim_end().to_owned()))
    }

    /// The library's error messages.
    fn log(&self) -> String {
        self.read(self.functions.error_log_size, self.functions.error_log)
    }

    /// Returns the text that the library printed about its inputs.
    pub fn remarks(&self) -> String {
        self.read(self.functions.info_log_size, self.functions.info_log)
    }

    fn read(
        &self,
        size_of: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
        text_of: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ) -> String {
        let mut size = 0;
        if self.handle.is_null() {
            return String::new();
        }
        // SAFETY: the handle is valid; the buffer has as many bytes as are said.
        unsafe {
            if size_of(self.handle, &mut size) != 0 || size == 0 {
                return String::new();
            }
            let mut log = vec![0u8; size];
            if text_of(self.handle, log.as_mut_ptr().cast()) != 0 {
                return String::new();
            }
            let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(text).trim().to_owned()
        }
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: created, destroyed once; an error would only say that it was not.
            unsafe { (self.functions.destroy)(&mut self.handle) };
        }
    }
}

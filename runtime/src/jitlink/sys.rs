//! The raw functions of nvJitLink (nvJitLink.h of CUDA 12 and 13). Each function is exported once
//! for every minor version of the header.
#![allow(unsafe_code, reason = "functions of a C library")]

use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// A handle of a link, `nvJitLinkHandle`.
pub type Handle = *mut c_void;

/// `NVJITLINK_INPUT_CUBIN`, a relocatable cubin.
pub const CUBIN: c_int = 1;
/// The kind of PTX inputs, `NVJITLINK_INPUT_PTX`.
pub const PTX: c_int = 2;

/// The names of `nvJitLinkResult`, from 0 on.
pub const RESULTS: [&str; 19] = [
    "success",
    "unrecognized option",
    "missing -arch",
    "invalid input",
    "PTX does not compile",
    "NVVM does not compile",
    "internal error",
    "no threads",
    "unrecognized input",
    "finalizer error",
    "null input",
    "incompatible options",
    "incorrect input type",
    "architectures differ",
    "this nvJitLink is too old for its input",
    "missing fatbin",
    "unrecognized -arch",
    "unsupported -arch",
    "requires -lto",
];

macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $name:literal ($($arg:ty),*);)*) => {
        /// The functions of nvJitLink, by name.
        pub struct Functions {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($arg),*) -> c_int,)*
        }

        impl Functions {
            /// Finds the functions, by the names in the headers of that version.
            ///
            /// # Errors
            /// Fails with the name of the first function that the library lacks.
            ///
            /// # Safety
            /// The library is nvJitLink, and stays loaded as long as the functions are called.
            pub unsafe fn load(library: &Library, (major, minor): (u32, u32)) -> Result<Functions, String> {
                Ok(Functions { $($field: {
                    let name = format!("__{}_{major}_{minor}", $name);
                    // SAFETY: the caller guarantees it; the signature is the header's.
                    match unsafe { library.get(name.as_bytes()) } {
                        Ok(function) => *function,
                        Err(_) => return Err(name),
                    }
                },)* })
            }
        }
    };
}

functions! {
    /// Creates a handle with options.
    create = "nvJitLinkCreate"(*mut Handle, u32, *const *const c_char);
    /// Destroys the handle and sets it to null.
    destroy = "nvJitLinkDestroy"(*mut Handle);
    /// Adds an input: its kind, its data and size, and a name for messages.
    add_data = "nvJitLinkAddData"(Handle, c_int, *const c_void, usize, *const c_char);
    /// Links the inputs.
    complete = "nvJitLinkComplete"(Handle);
    /// Returns the size of the cubin in bytes.
    cubin_size = "nvJitLinkGetLinkedCubinSize"(Handle, *mut usize);
    /// Copies the cubin.
    cubin = "nvJitLinkGetLinkedCubin"(Handle, *mut c_void);
    /// Returns the size of the info log in bytes, including the final 0.
    info_log_size = "nvJitLinkGetInfoLogSize"(Handle, *mut usize);
    /// Copies the info log.
    info_log = "nvJitLinkGetInfoLog"(Handle, *mut c_char);
    /// Returns the size of the error log in bytes, including the final 0.
    error_log_size = "nvJitLinkGetErrorLogSize"(Handle, *mut usize);
    /// Copies the error log.
    error_log = "nvJitLinkGetErrorLog"(Handle, *mut c_char);
}

/// Returns the major and minor version of the library. Libraries before 12.3 do not report theirs,
/// and count as 12.0.
///
/// # Safety
/// The library is nvJitLink.
pub unsafe fn version(library: &Library) -> (u32, u32) {
    type Version = unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> c_int;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the signature is the header's; the pointers are to locals.
    let told = unsafe {
        library.get::<Version>(b"nvJitLinkVersion").is_ok_and(|version| version(&mut major, &mut minor) == 0)
    };
    if told { (major, minor) } else { (12, 0) }
}

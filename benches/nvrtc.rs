//! NVRTC, NVIDIA's compiler of CUDA C++ at run time, opened where a machine has it (`pip install nvidia-cuda-nvrtc`).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use libloading::{Library, Symbol};
use weft::tools::Tool;

/// The opened library.
pub struct Nvrtc(Library);

type Program = *mut c_void;
type Status = c_int;

impl Nvrtc {
    /// Opens it, or says why not.
    pub fn open() -> Result<Nvrtc, String> {
        let path = Tool::Nvrtc.find().map_err(|e| e.to_string())?;
        // SAFETY: loading libnvrtc runs no code but its own initialisers.
        unsafe { Library::new(&path) }.map(Nvrtc).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Compiles CUDA C++ to PTX.
    pub fn compile(&self, source: &CStr, options: &[CString]) -> Result<String, String> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> Status;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status;
        type Size = unsafe extern "C" fn(Program, *mut usize) -> Status;
        type Text = unsafe extern "C" fn(Program, *mut c_char) -> Status;
        type Destroy = unsafe extern "C" fn(*mut Program) -> Status;

        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: names and signatures are those of nvrtc.h; every pointer outlives its call, and the text has the
        // size that the library gave for it.
        unsafe {
            let create: Symbol<'_, Create> = self.symbol(c"nvrtcCreateProgram")?;
            let compile: Symbol<'_, Compile> = self.symbol(c"nvrtcCompileProgram")?;
            let destroy: Symbol<'_, Destroy> = self.symbol(c"nvrtcDestroyProgram")?;
            let text = |program, size: &CStr, get: &CStr| -> Result<String, String> {
                let (size, get): (Symbol<'_, Size>, Symbol<'_, Text>) =
                    (self.symbol(size)?, self.symbol(get)?);
                let mut n = 0;
                check(size(program, &mut n))?;
                let mut bytes = vec![0u8; n];
                check(get(program, bytes.as_mut_ptr().cast()))?;
                Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
            };
            let mut program = null_mut();
            check(create(&mut program, source.as_ptr(), c"two_shot.cu".as_ptr(), 0, null(), null()))?;
            let done = check(compile(program, options.len() as c_int, options.as_ptr()));
            let result = match done {
                Ok(()) => text(program, c"nvrtcGetPTXSize", c"nvrtcGetPTX"),
                Err(e) => {
                    Err(format!("{e}\n{}", text(program, c"nvrtcGetProgramLogSize", c"nvrtcGetProgramLog")?))
                }
            };
            check(destroy(&mut program))?;
            result
        }
    }

    /// # Safety
    /// `T` must be the type of the function.
    unsafe fn symbol<T>(&self, name: &CStr) -> Result<Symbol<'_, T>, String> {
        // SAFETY: the caller's.
        unsafe { self.0.get(name.to_bytes_with_nul()) }.map_err(|e| e.to_string())
    }
}

fn check(status: Status) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("NVRTC: error {status}")) }
}

//! Tests of the version of NVSHMEM's device bitcode, and of files that are not NVSHMEM's bitcode.

use crate::{bitcode, file};
use std::path::Path;
use tempfile::TempDir;
use weft_llvm::codes::BAD_LIBRARY;
use weft_llvm::nvshmem::device_library_version;

/// The variable as in NVSHMEM 3.4.5, and a function.
const TEXT: &str = r#"
target triple = "nvptx64-nvidia-cuda"
%struct.nvshmemi_version_t = type { i32, i32, i32 }
@nvshmemi_device_lib_version_d = addrspace(4) externally_initialized global %struct.nvshmemi_version_t { i32 3, i32 4, i32 5 }, align 4
define i32 @nvshmem_n_pes() {
  ret i32 8
}
"#;

/// The error for a file.
fn reject(path: &Path) -> String {
    let e = device_library_version(path).unwrap_err();
    assert_eq!(e.code, BAD_LIBRARY);
    assert!(e.message.contains(path.to_str().unwrap()) && e.help.is_some(), "{e:?}");
    e.message
}

#[test]
fn the_version_is_read() {
    let folder = TempDir::new().unwrap();
    assert_eq!(device_library_version(&file(&folder, &bitcode(TEXT))), Ok([3, 4, 5]));
    let zero = TEXT.replace("{ i32 3, i32 4, i32 5 }", "zeroinitializer");
    assert_eq!(device_library_version(&file(&folder, &bitcode(&zero))), Ok([0, 0, 0]));
}

#[test]
fn files_that_are_not_nvshmem_are_reported() {
    let folder = TempDir::new().unwrap();
    let other = TEXT.replace("nvshmemi_device_lib_version_d", "something_else");
    assert!(reject(&file(&folder, &bitcode(&other))).contains("nvshmemi_device_lib_version_d"));
    // In these texts the variable is only declared, or has another type.
    for end in [
        "external addrspace(4) global i32",
        "addrspace(4) global i32 3",
        "addrspace(4) global { float } zeroinitializer",
    ] {
        let line = format!("@nvshmemi_device_lib_version_d = {end}\n");
        assert!(reject(&file(&folder, &bitcode(&line))).contains("nvshmemi_device_lib_version_d"), "{end}");
    }
    assert!(reject(&file(&folder, b"\x7fELF")).contains("not device bitcode"));
    assert!(reject(&file(&folder, b"")).contains("not device bitcode"));
    reject(folder.path());
    reject(&folder.path().join("nothing.bc"));
}

#[test]
fn a_truncated_file_is_an_error() {
    let folder = TempDir::new().unwrap();
    let whole = bitcode(TEXT);
    for length in (0..whole.len()).step_by(4) {
        reject(&file(&folder, &whole[..length]));
    }
}

//! NCCL as it is installed: its functions and numbers are those that `nccl::sys` has, and it can be opened.
//!
//! `WEFT_NCCL` names a libnccl.so.2 in a wheel or an installation, which has `include/nccl.h` too; without it nothing is
//! compared, which is said.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;
use weft_runtime::nccl::{self, sys};
use weft_runtime::{DType, Reduce};

/// nccl.h without comments, of the installation that is named.
fn header() -> Option<String> {
    let Some(library) = std::env::var_os("WEFT_NCCL").map(PathBuf::from) else {
        println!("skipped: WEFT_NCCL is not set");
        return None;
    };
    let root = library.parent().and_then(|lib| lib.parent()).unwrap();
    let mut text = std::fs::read_to_string(root.join("include/nccl.h")).unwrap();
    while let Some(start) = text.find("/*") {
        let end = start + text[start..].find("*/").unwrap() + 2;
        text.replace_range(start..end, " ");
    }
    Some(text)
}

/// A parameter of C's as `sys` writes it.
fn rust_type(parameter: &str) -> &'static str {
    let spaced = parameter.replace('*', " * ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let stars = words.iter().filter(|w| **w == "*").count();
    match (words[0], stars) {
        ("const", 1) => "*const c_void",
        ("void", 1) => "*mut c_void",
        ("void", 2) => "*mut *mut c_void",
        ("size_t", 0) => "usize",
        ("int" | "ncclDataType_t" | "ncclRedOp_t" | "ncclResult_t", 0) => "c_int",
        ("int" | "ncclResult_t", 1) => "*mut c_int",
        ("ncclUniqueId", 0) => "UniqueId",
        ("ncclUniqueId", 1) => "*mut UniqueId",
        ("ncclComm_t", 0) => "Comm",
        ("ncclComm_t", 1) => "*mut Comm",
        ("ncclWindow_t", 0) => "Window",
        ("ncclWindow_t", 1) => "*mut Window",
        ("cudaStream_t", 0) => "Stream",
        _ => panic!("{parameter}"),
    }
}

#[test]
fn signatures_are_the_headers() {
    let Some(header) = header() else { return };
    for (name, parameters) in sys::SIGNATURES {
        let start = header.find(&format!(" {name}(")).unwrap_or_else(|| panic!("no {name}")) + name.len() + 2;
        let declared = &header[start..start + header[start..].find(')').unwrap()];
        let declared: Vec<_> = declared.split(',').filter(|p| !p.trim().is_empty()).map(rust_type).collect();
        assert_eq!(&declared, parameters, "{name}");
    }
    assert!(header.contains("#define NCCL_UNIQUE_ID_BYTES 128"));
    assert!(header.contains(&format!("#define NCCL_WIN_COLL_SYMMETRIC {:#04x}", sys::WIN_COLL_SYMMETRIC)));
}

#[test]
fn numbers_are_the_headers() {
    let Some(header) = header() else { return };
    let value = |name: &str| {
        let all =
            header.split(|c: char| !(c.is_alphanumeric() || "_=".contains(c))).filter(|w| !w.is_empty());
        let all: Vec<_> = all.collect();
        let at = all.windows(2).position(|w| w == [name, "="]).unwrap_or_else(|| panic!("no {name}"));
        all[at + 2].parse::<i32>().unwrap()
    };
    let names = [
        (DType::I8, "ncclInt8"),
        (DType::U8, "ncclUint8"),
        (DType::I32, "ncclInt32"),
        (DType::U32, "ncclUint32"),
        (DType::I64, "ncclInt64"),
        (DType::U64, "ncclUint64"),
        (DType::F16, "ncclFloat16"),
        (DType::F32, "ncclFloat32"),
        (DType::F64, "ncclFloat64"),
        (DType::BF16, "ncclBfloat16"),
        (DType::E4M3, "ncclFloat8e4m3"),
        (DType::E5M2, "ncclFloat8e5m2"),
    ];
    for dtype in DType::ALL {
        let name = names.iter().find(|(d, _)| d == dtype).map(|(_, name)| value(name));
        assert_eq!(sys::data_type(*dtype), name, "{dtype}");
    }
    assert_eq!(sys::BYTES, value("ncclUint8"));
    let ops = [
        (Reduce::Sum, "ncclSum"),
        (Reduce::Prod, "ncclProd"),
        (Reduce::Min, "ncclMin"),
        (Reduce::Max, "ncclMax"),
    ];
    for op in Reduce::ALL {
        let name = ops.iter().find(|(o, _)| *o == op).map(|(_, name)| value(name));
        assert_eq!(sys::operation(op), name, "{}", op.name());
    }
}

/// It needs no GPU to be opened.
#[test]
fn it_opens_and_says_its_version() {
    let Some(header) = header() else { return };
    let (version, path) = nccl::installed().unwrap();
    let code = version.major * 10_000 + version.minor * 100 + version.patch;
    assert!(header.contains(&format!("#define NCCL_VERSION_CODE {code}")), "{version}");
    assert_eq!(Some(path.as_os_str()), std::env::var_os("WEFT_NCCL").as_deref());
}

#[test]
fn what_nccl_cannot_reduce() {
    assert!(nccl::reduces(DType::BF16, Reduce::Sum).is_ok());
    for (dtype, op) in [(DType::I16, Reduce::Sum), (DType::Bool, Reduce::Max), (DType::U32, Reduce::Xor)] {
        let e = nccl::reduces(dtype, op).unwrap_err();
        assert!(e.to_string().starts_with("error[R0401]") && e.message.contains(op.name()), "{e}");
    }
}

//! cuBLASLt as it is installed: its functions, numbers and structures are those that `cublas::sys` has, and it can be
//! opened without a GPU.
//!
//! `WEFT_CUBLASLT` names a libcublasLt.so in a wheel or an installation, which has `include/cublasLt.h` too; without it
//! nothing is compared with the header, which is said.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;
use weft_runtime::DType;
use weft_runtime::cublas::{self, Version, sys};

/// A header beside the library that is named, without comments.
fn header(name: &str) -> Option<String> {
    let Some(library) = std::env::var_os("WEFT_CUBLASLT").map(PathBuf::from) else {
        println!("skipped: WEFT_CUBLASLT is not set");
        return None;
    };
    let root = library.parent().and_then(|lib| lib.parent()).unwrap();
    let mut text = std::fs::read_to_string(root.join("include").join(name)).unwrap();
    while let Some(start) = text.find("/*") {
        let end = start + text[start..].find("*/").unwrap() + 2;
        text.replace_range(start..end, " ");
    }
    let lines: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    Some(lines.join("\n"))
}

/// A parameter of C's as `sys` writes it.
fn rust_type(parameter: &str) -> &'static str {
    let spaced = parameter.replace('*', " * ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let pointer = words.contains(&"*") || parameter.contains("[]");
    match (words[0], words.get(1).copied().unwrap_or_default(), pointer) {
        ("const", "cublasLtMatmulAlgo_t", true) => "*const Algo",
        ("const", "void", true) => "*const c_void",
        ("void", _, true) => "*mut c_void",
        ("cublasLtMatmulHeuristicResult_t", _, true) => "*mut HeuristicResult",
        ("int", _, true) => "*mut c_int",
        (
            "cublasLtHandle_t"
            | "cublasLtMatmulDesc_t"
            | "cublasLtMatrixLayout_t"
            | "cublasLtMatmulPreference_t",
            _,
            pointer,
        ) => {
            if pointer {
                "*mut Handle"
            } else {
                "Handle"
            }
        }
        ("size_t", _, false) => "usize",
        ("uint64_t", _, false) => "u64",
        ("int64_t", _, false) => "i64",
        ("cudaStream_t", _, false) => "Stream",
        (
            "int"
            | "cudaDataType_t"
            | "cudaDataType"
            | "cublasComputeType_t"
            | "cublasStatus_t"
            | "cublasLtMatmulDescAttributes_t"
            | "cublasLtMatmulPreferenceAttributes_t",
            _,
            false,
        ) => "c_int",
        _ => panic!("{parameter}"),
    }
}

#[test]
fn signatures_are_the_headers() {
    let Some(header) = header("cublasLt.h") else { return };
    for (name, parameters) in sys::SIGNATURES {
        let start = header.find(&format!(" {name}(")).unwrap_or_else(|| panic!("no {name}")) + name.len() + 2;
        let declared = &header[start..start + header[start..].find(')').unwrap()];
        let declared: Vec<_> = declared
            .split(',')
            .filter(|p| !p.trim().is_empty() && p.trim() != "void")
            .map(rust_type)
            .collect();
        assert_eq!(&declared, parameters, "{name}");
    }
}

#[test]
fn numbers_are_the_headers() {
    let Some(header) = header("cublasLt.h") else { return };
    let numbers = [
        ("CUBLASLT_MATMUL_DESC_TRANSA", sys::DESC_TRANSA),
        ("CUBLASLT_MATMUL_DESC_TRANSB", sys::DESC_TRANSB),
        ("CUBLASLT_MATMUL_DESC_FAST_ACCUM", sys::DESC_FAST_ACCUM),
        ("CUBLASLT_MATMUL_DESC_A_SCALE_POINTER", sys::DESC_A_SCALE_POINTER),
        ("CUBLASLT_MATMUL_DESC_B_SCALE_POINTER", sys::DESC_B_SCALE_POINTER),
        ("CUBLASLT_MATMUL_DESC_A_SCALE_MODE", sys::DESC_A_SCALE_MODE),
        ("CUBLASLT_MATMUL_DESC_B_SCALE_MODE", sys::DESC_B_SCALE_MODE),
        ("CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F", sys::SCALE_SCALAR_32F),
        ("CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F", sys::SCALE_OUTER_VEC_32F),
        ("CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F", sys::SCALE_VEC128_32F),
        ("CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F", sys::SCALE_BLK128X128_32F),
        ("CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES", sys::PREF_MAX_WORKSPACE_BYTES),
    ];
    for (name, number) in numbers {
        assert!(header.contains(&format!(" {name} = {number},")), "{name}");
    }
    let Some(api) = self::header("cublas_api.h") else { return };
    for (name, number) in [("CUBLAS_OP_N", sys::OP_N), ("CUBLAS_OP_T", sys::OP_T)] {
        assert!(api.contains(&format!(" {name} = {number},")), "{name}");
    }
    assert!(api.contains(&format!(" CUBLAS_STATUS_NOT_SUPPORTED = {},", sys::NOT_SUPPORTED)));
    for (dtype, name) in [(DType::BF16, "32F"), (DType::F32, "32F_FAST_TF32")] {
        let (_, compute) = sys::data_type(dtype).unwrap();
        let squeezed: String = api.split_whitespace().collect();
        assert!(squeezed.contains(&format!("CUBLAS_COMPUTE_{name}={compute},")), "{name}");
    }
}

/// As cublasLt.h declares them: eight words; a word, two numbers of four bytes and four more behind them.
#[test]
fn structures_have_the_librarys_sizes() {
    use std::mem::offset_of;
    assert_eq!(size_of::<sys::Algo>(), 64);
    assert_eq!(size_of::<sys::HeuristicResult>(), 96);
    assert_eq!(offset_of!(sys::HeuristicResult, workspace), 64);
    assert_eq!(offset_of!(sys::HeuristicResult, state), 72);
    assert_eq!(offset_of!(sys::HeuristicResult, waves), 76);
    assert_eq!(offset_of!(sys::HeuristicResult, reserved), 80);
}

#[test]
fn it_opens_and_says_its_version() {
    let Some(header) = header("cublas_api.h") else { return };
    let (version, path) = cublas::installed().unwrap();
    let part = |name: &str| {
        let line = header.lines().find(|l| l.contains(&format!("#define CUBLAS_VER_{name} "))).unwrap();
        line.split_whitespace().last().unwrap().parse::<usize>().unwrap()
    };
    assert_eq!(version, Version(part("MAJOR") * 10_000 + part("MINOR") * 100 + part("PATCH")));
    assert_eq!(Some(path.as_os_str()), std::env::var_os("WEFT_CUBLASLT").as_deref());
}

#[test]
fn versions_and_types() {
    assert_eq!(Version(130_100).to_string(), "13.1.0");
    assert_eq!(Version(120_802).to_string(), "12.8.2");
    assert!(cublas::has(DType::E4M3).is_ok());
    for dtype in [DType::F64, DType::I8, DType::Bool] {
        let e = cublas::has(dtype).unwrap_err().to_string();
        assert!(e.starts_with("error[R0401]") && e.contains(dtype.name()), "{e}");
    }
}

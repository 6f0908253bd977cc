//! Tests of linking with a small library that has every kind of item that NVSHMEM's has.

use crate::{bitcode, file};
use std::path::Path;
use tempfile::TempDir;
use weft_ir::machine::Verified;
use weft_ir::text::parse_module;
use weft_ir::verify::verify;
use weft_llvm::codes::{BAD_LIBRARY, NEW_LIBRARY, NO_LIBRARY_FUNCTION, OLD_PTX};
use weft_llvm::{Link, Options, Output, emit, object};

/// `small` is inlined. `large` calls `inner` and stays a function. Nothing calls `unused`.
fn library() -> String {
    let steps: String = (0..70).map(|i| format!("  %a{} = call i32 @asm_(i32 %a{i})\n", i + 1)).collect();
    format!(
        r#"
target datalayout = "e-i64:64-i128:128-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
%state = type {{ i32, i32, [16 x i64] }}
@nvshmemi_device_state_d = dso_local addrspace(4) externally_initialized constant %state zeroinitializer, align 8
@nvshmemi_device_lib_version_d = dso_local addrspace(4) externally_initialized constant {{ i32, i32, i32 }} {{ i32 3, i32 4, i32 5 }}, align 4
@llvm.compiler.used = appending global [1 x ptr] [ptr addrspacecast (ptr addrspace(4) @nvshmemi_device_state_d to ptr)], section "llvm.metadata"
@.str = private unnamed_addr constant [6 x i8] c"never\00", align 1
@where = private unnamed_addr constant [6 x i8] c"where\00", align 1
declare void @__assertfail(ptr, ptr, i32, ptr, i64)
declare i32 @vprintf(ptr, ptr)
declare i32 @__nvvm_reflect(ptr)

define dso_local i32 @nvshmem_small(ptr noundef %x) local_unnamed_addr #0 {{
  %a = load i32, ptr addrspacecast (ptr addrspace(4) @nvshmemi_device_state_d to ptr), align 8
  %b = load i32, ptr %x, align 4
  %c = add i32 %a, %b
  ret i32 %c
}}
define internal i32 @asm_(i32 %x) #1 {{
  %y = call i32 asm sideeffect "add.u32 $0, $1, 1;", "=r,r"(i32 %x)
  ret i32 %y
}}
define linkonce_odr dso_local void @_Z5inner(i32 %x) #2 {{
  call void @__assertfail(ptr @where, ptr @where, i32 %x, ptr @where, i64 1)
  ret void
}}
define dso_local signext i8 @nvshmemx_large_block(ptr noundef %x, i64 noundef %n, i16 noundef zeroext %k) #0 {{
  %a0 = load i32, ptr %x, align 4
{steps}  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  call void @_Z5inner(i32 %a70)
  %r = trunc i32 %a70 to i8
  ret i8 %r
}}
define dso_local i32 @nvshmem_reflects() #0 {{
  %a = call i32 @__nvvm_reflect(ptr @.arch)
  %b = icmp sge i32 %a, 900
  %c = select i1 %b, i32 90, i32 0
  ret i32 %c
}}
@.arch = private unnamed_addr constant [12 x i8] c"__CUDA_ARCH\00", align 1
define dso_local i32 @nvshmem_unused(ptr %x) #0 {{
  %a = call i32 @vprintf(ptr @.str, ptr %x)
  ret i32 %a
}}
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
attributes #0 = {{ alwaysinline convergent nounwind "frame-pointer"="all" "target-cpu"="sm_90" "target-features"="+ptx83,+sm_90" }}
attributes #1 = {{ noinline nounwind "target-cpu"="sm_90" "target-features"="+ptx83,+sm_90" }}
attributes #2 = {{ noinline nounwind "target-cpu"="sm_90" "target-features"="+ptx83,+sm_90" }}
"#
    )
}

/// A kernel of these instructions, which follow the pointer `%3`.
fn kernel(name: &str, body: &str) -> String {
    format!(
        "machine kernel @{name} block(64, 1, 1) {{
  param 0 x: i64
  param 1 n: u64
  param 2 k: u16
  %0 = param 0 : i64
  %1 = param 1 : u64
  %2 = param 2 : u16
  %3 = int_to_ptr %0 : ptr<symm>
{body}}}
"
    )
}

const SMALL: &str = "  %4 = call \"nvshmem_small\", [%3] : i32\n  %5 = st %3, %4, weak, sys\n";
const LARGE: &str = "  %4 = call \"nvshmemx_large_block\", [%3 %1 %2] : i8\n  %5 = st %3, %4, weak, sys\n";

fn module(text: &str) -> Verified {
    verify(parse_module(text).unwrap()).unwrap()
}

fn options(target: &str) -> Options<'static> {
    Options::new(target.parse().unwrap())
}

/// The kernels linked with the library.
fn linked(text: &str) -> Output {
    let folder = TempDir::new().unwrap();
    let path = file(&folder, &bitcode(&library()));
    let options = options("sm_90a").link(Link::Library(&path));
    emit(&module(text), &options).unwrap_or_else(|e| panic!("{e}"))
}

/// Names of the functions that PTX defines, in order.
fn functions(ptx: &str) -> Vec<&str> {
    let heads =
        ptx.split("\n.func").skip(1).filter(|f| f.find('{').is_some_and(|b| f[..b].find(';').is_none()));
    let names = heads.filter_map(|head| {
        let head = head.trim_start().strip_prefix('(').map_or(head, |h| h.split_once(')').map_or(h, |h| h.1));
        head.trim_start().split(['(', '\n', ' ']).next()
    });
    names.collect()
}

#[test]
fn small_functions_are_inlined_and_unreachable_ones_left_out() {
    let out = linked(&kernel("k", SMALL));
    assert_eq!(functions(&out.ptx), [""; 0], "{}", out.ptx);
    assert!(!out.ptx.contains("call"), "{}", out.ptx);
    for absent in ["unused", "vprintf", "__assertfail", "never", "large"] {
        assert!(!out.ptx.contains(absent), "{absent}: {}", out.ptx);
    }
    // It reads the state at its address.
    assert!(out.ptx.contains("ld.const.b32") && out.ptx.contains("[nvshmemi_device_state_d]"), "{}", out.ptx);
    assert_eq!((out.functions, out.library), (vec!["nvshmem_small".into()], Some([3, 4, 5])));
}

#[test]
fn variables_of_the_hosts_stay_visible() {
    let ptx = linked(&kernel("k", SMALL)).ptx;
    assert!(ptx.contains(".visible .const .align 8 .b8 nvshmemi_device_state_d[136]"), "{ptx}");
    assert!(
        ptx.contains(
            ".visible .const .align 4 .b8 nvshmemi_device_lib_version_d[12] = {3, 0, 0, 0, 4, 0, 0, 0, 5}"
        ),
        "{ptx}"
    );
}

#[test]
fn large_functions_are_shared_by_kernels_and_keep_their_own_calls() {
    let out = linked(&(kernel("a", LARGE) + &kernel("b", LARGE)));
    assert_eq!(functions(&out.ptx), ["nvshmemx_large_block", "asm_", "_Z5inner"], "{}", out.ptx);
    assert!(!out.ptx.contains(".visible .func"), "{}", out.ptx);
    assert!(out.ptx.contains(".extern .func __assertfail"), "{}", out.ptx);
    assert_eq!(out.ptx.matches("nvshmemx_large_block,").count(), 2, "{}", out.ptx);
    // The bodies are those of the library, compiled by the full code generator: there is one
    // barrier and no stack.
    assert!(!out.ptx.contains("__local_depot"), "{}", out.ptx);
    assert_eq!(
        out.ptx.matches("bar.sync").count() + out.ptx.matches("barrier.sync").count(),
        1,
        "{}",
        out.ptx
    );
}

#[test]
fn questions_to_the_compiler_are_answered() {
    let body = "  %4 = call \"nvshmem_reflects\", [] : i32\n  %5 = st %3, %4, weak, sys\n";
    let ptx = linked(&kernel("k", body)).ptx;
    assert!(!ptx.contains("__nvvm_reflect") && ptx.contains(", 90;"), "{ptx}");
}

#[test]
fn the_version_of_ptx_is_the_librarys_at_least() {
    let folder = TempDir::new().unwrap();
    let path = file(&folder, &bitcode(&library()));
    let linked = options("sm_90a").link(Link::Library(&path));
    let text = module(&kernel("k", SMALL));
    assert!(emit(&text, &linked).unwrap().ptx.contains(".version 8.3\n.target sm_90a\n"));
    assert!(emit(&text, &options("sm_90a")).unwrap().ptx.contains(".version 8.0\n"));
    let old = linked.ptx_version(Some("8.1".parse().unwrap()));
    let e = emit(&text, &old).unwrap_err();
    assert!(e.code == OLD_PTX && e.message.contains("NVSHMEM 3.4.5"), "{e}");
}

#[test]
fn a_kernel_without_calls_links_nothing() {
    let out = linked(&kernel("k", "  %4 = st %3, %1, weak, sys\n"));
    assert!(out.library.is_none() && !out.ptx.contains("nvshmem"), "{}", out.ptx);
}

#[test]
fn a_missing_function_is_reported_with_its_version() {
    let folder = TempDir::new().unwrap();
    let path = file(&folder, &bitcode(&library()));
    let linked = options("sm_90a").link(Link::Library(&path));
    let fails = |body: &str| {
        let e = emit(&module(&kernel("k", body)), &linked).unwrap_err();
        assert_eq!(e.code, NO_LIBRARY_FUNCTION, "{e}");
        assert!(e.message.contains("NVSHMEM 3.4.5 (") && e.message.contains(path.to_str().unwrap()), "{e}");
        e
    };
    let e = fails("  %4 = call \"nvshmemx_float_atomic_add\", [%3]\n");
    assert!(e.help.as_ref().is_some_and(|h| h.contains("3.7")), "{e:?}");
    let e = fails("  %4 = call \"nvshmem_nothing\", [%3]\n");
    assert!(e.message.contains("`nvshmem_nothing`"), "{e}");
    // The function exists, but with another type than in the call.
    let e = fails("  %4 = call \"nvshmem_small\", [%3 %1] : i32\n");
    assert!(e.message.contains("i32 (ptr)") && e.message.contains("i32 (ptr, i64)"), "{e}");
}

#[test]
fn a_library_for_later_gpus_is_rejected() {
    let folder = TempDir::new().unwrap();
    let later = library().replace("\"target-cpu\"=\"sm_90\"", "\"target-cpu\"=\"sm_100\"");
    let path = file(&folder, &bitcode(&later));
    let linked = |target| options(target).link(Link::Library(&path));
    let text = module(&kernel("k", SMALL));
    let e = emit(&text, &linked("sm_90a")).unwrap_err();
    assert!(e.code == NEW_LIBRARY && e.message.contains("sm_100") && e.message.contains("sm_90a"), "{e}");
    assert_eq!(object(&path, &["nvshmem_small"], &options("sm_90a")).unwrap_err().code, NEW_LIBRARY);
    assert!(emit(&text, &linked("sm_103a")).is_ok());
}

#[test]
fn an_object_has_the_requested_functions_and_exports_them() {
    let folder = TempDir::new().unwrap();
    let path = file(&folder, &bitcode(&library()));
    let out = object(&path, &["nvshmem_small", "nvshmemx_large_block"], &options("sm_90a")).unwrap();
    for shown in ["nvshmem_small", "nvshmemx_large_block"] {
        assert!(out.ptx.lines().any(|l| l.starts_with(".visible .func") && l.contains(shown)), "{}", out.ptx);
    }
    assert!(
        !out.ptx.contains(".visible .func _Z5inner") && out.ptx.contains(".func _Z5inner"),
        "{}",
        out.ptx
    );
    assert!(!out.ptx.contains("unused") && out.ptx.contains(".visible .const"), "{}", out.ptx);
    assert_eq!(out.library, Some([3, 4, 5]));
    assert_eq!(object(&path, &["absent"], &options("sm_90a")).unwrap_err().code, NO_LIBRARY_FUNCTION);
}

#[test]
fn damage_is_an_error_wherever_it_is() {
    // Damage in a body is noticed when the body is read.
    let folder = TempDir::new().unwrap();
    let whole = bitcode(&library());
    let text = module(&kernel("k", LARGE));
    for length in (0..whole.len()).step_by(97) {
        let path = file(&folder, &whole[..length]);
        let linked = options("sm_90a").link(Link::Library(&path));
        assert_eq!(emit(&text, &linked).unwrap_err().code, BAD_LIBRARY, "{length} of {}", whole.len());
    }
}

#[test]
fn variables_are_printed_in_the_librarys_order() {
    const NAMES: [&str; 8] = ["north", "east", "south", "west", "up", "down", "left", "right"];
    let variables: String = NAMES
        .map(|name| {
            format!("@{name} = dso_local addrspace(4) externally_initialized constant i32 0, align 4\n")
        })
        .concat();
    let used = NAMES.map(|name| format!(", ptr addrspacecast (ptr addrspace(4) @{name} to ptr)")).concat();
    let text = library()
        .replace("global [1 x ptr] [", "global [9 x ptr] [")
        .replace(" to ptr)], section", &format!(" to ptr){used}], section"))
        .replace("@llvm.compiler.used", &format!("{variables}@llvm.compiler.used"));
    let folder = TempDir::new().unwrap();
    let path = file(&folder, &bitcode(&text));
    let order = |ptx: &str| {
        let places = NAMES.map(|name| ptx.find(&format!(" {name};")).or(ptx.find(&format!(" {name} "))));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}\n{ptx}");
    };
    let linked = options("sm_90a").link(Link::Library(&path));
    order(&emit(&module(&kernel("k", LARGE)), &linked).unwrap().ptx);
    order(&object(&path, &["nvshmemx_large_block"], &options("sm_90a")).unwrap().ptx);
}

/// The library as a file, for tests of crates that cannot make one. `WEFT_BLESS=1` writes it.
#[test]
fn the_file_that_other_tests_link_with_is_this_library() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/nvshmem_functions_3_4_5.bc");
    if std::env::var_os("WEFT_BLESS").is_some() {
        std::fs::write(&kept, bitcode(&library())).unwrap();
    }
    // (The bytes are not compared, because LLVM writes its own name into them.)
    let ptx = |path: &Path| {
        let options = options("sm_90a").link(Link::Library(path));
        emit(&module(&kernel("k", LARGE)), &options).unwrap_or_else(|e| panic!("{e}")).ptx
    };
    let folder = TempDir::new().unwrap();
    assert_eq!(ptx(&kept), ptx(&file(&folder, &bitcode(&library()))));
}

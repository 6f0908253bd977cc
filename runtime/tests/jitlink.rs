//! nvJitLink, where it is installed: a kernel's PTX joined with another module's. Without it, its absence.

use std::path::PathBuf;
use weft_runtime::error::{JITLINK, NO_JITLINK};
use weft_runtime::find::Found;
use weft_runtime::jitlink::{Input, JitLink};

const KERNEL: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n
.extern .func (.param .b32 r) twice(.param .b32 x);
.visible .entry k(.param .b64 out) {
  .reg .b32 %r<3>;
  .reg .b64 %d<2>;
  ld.param.b64 %d1, [out];
  { .param .b32 a; .param .b32 b; st.param.b32 [a], 21; call.uni (b), twice, (a); ld.param.b32 %r1, [b]; }
  st.global.b32 [%d1], %r1;
  ret;
}";

const TWICE: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n
.visible .func (.param .b32 r) twice(.param .b32 x) {
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [x];
  shl.b32 %r2, %r1, 1;
  st.param.b32 [r], %r2;
  ret;
}";

/// The library, or a word on why not.
fn library() -> Option<&'static JitLink> {
    match JitLink::get() {
        Ok(library) => Some(library),
        Err(e) => {
            assert!(std::env::var_os("WEFT_REQUIRE_NVJITLINK").is_none(), "{e}");
            println!("skipped: {e}");
            None
        }
    }
}

#[test]
fn ptx_is_joined_to_a_cubin() {
    let Some(library) = library() else { return };
    assert!(library.version() >= (12, 0));
    let cubin = library
        .link("sm_90a", Some(64), &[Input::Ptx("kernel", KERNEL), Input::Ptx("twice", TWICE)])
        .unwrap();
    assert!(cubin.starts_with(b"\x7fELF"));
    let has = |name: &[u8]| cubin.windows(name.len()).any(|w| w == name);
    assert!(has(b".text.k"));
}

#[test]
fn what_is_wrong_is_said() {
    let Some(library) = library() else { return };
    let fails = |target, inputs: &[Input<'_>]| {
        let e = library.link(target, None, inputs).unwrap_err();
        assert_eq!(e.code, JITLINK);
        e.message
    };
    assert!(fails("sm_90a", &[Input::Ptx("kernel", KERNEL)]).contains("twice"));
    assert!(fails("sm_90a", &[Input::Ptx("kernel", "no ptx")]).contains("PTX"));
    fails("sm_90a", &[Input::Object("object", b"no cubin")]);
    fails("sm_1", &[]);
    fails("sm_90a\0", &[]);
}

#[test]
fn another_library_is_refused() {
    for path in ["/nowhere/libnvJitLink.so", "/lib/x86_64-linux-gnu/libc.so.6"] {
        let e = JitLink::open(Found { path: PathBuf::from(path), by: "a test".into() }).err().unwrap();
        assert_eq!(e.code, NO_JITLINK);
        assert!(e.message.contains(path), "{e}");
    }
}

//! Tests of the remarks of ptxas and nvJitLink on code that they accept: warnings at the lines of
//! the kernel's text, and errors if `WEFT_STRICT_PTXAS` is 1.
//!
//! It needs ptxas. Without it the tests print a message and pass, unless `WEFT_REQUIRE_PTXAS=1`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::Write;
use std::process::{Command, Output};
use weft::codes::Page;
use weft::runtime::jitlink::{Input, JitLink};
use weft::runtime::launch::remarks::remarks;
use weft::tools::warning;
use weft::tools::{Tool, assemble};
use weft::{Compiled, KernelFile, Options};
use weft_abi::RemarkKind;

/// A kernel whose threads have 248 registers of accumulators, and 7 for everything else.
const BIG: &str = "\
kernel big(k: int % 8, a: global<bf16, (128, k):(k, 1)>, b: global<bf16, (248, k):(k, 1)>,
    d: global<f32, (128, 248):(248, 1)>) block(128)
{
    let sa = shared<bf16>(swizzled<bf16>((128, 64)));
    let sb = shared<bf16>(swizzled<bf16>((248, 64)));
    let p = pipeline(1);
    let mut acc = accumulator<f32>((128, 248));
    for j in 0..ceil_div(k, 64) {
        producer_acquire(p);
        tma(sa, flat_divide(a, (128, 64))[_, _, 0, j], p);
        tma(sb, flat_divide(b, (248, 64))[_, _, 0, j], p);
        consumer_wait(p);
        acc = mma_wait<0>(mma(sa, sb, acc));
        consumer_release(p);
    }
    d[_, _] = acc[_, _];
}
";

/// A kernel that reads an accumulator before it waits for the group.
const EARLY: &str = r#".version 8.0
.target sm_90a
.address_size 64
.visible .entry early(.param .b64 out, .param .b64 a) .reqntid 128
{
  .reg .f32 %f<6>;
  .reg .b64 %d<4>;
  .loc 1 3 5
  ld.param.b64 %d1, [out];
  ld.param.b64 %d2, [a];
  mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
  .loc 1 7 9
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %d2, %d2, 1, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  .loc 1 8 9
  add.f32 %f5, %f1, %f2;
  st.global.f32 [%d1], %f5;
  wgmma.wait_group.sync.aligned 0;
  st.global.v4.f32 [%d1+16], {%f1, %f2, %f3, %f4};
  ret;
}
.file 1 "early.weft"
"#;

/// Whether ptxas is installed. Prints the reason if it is not.
fn ready() -> bool {
    let Err(missing) = Tool::Ptxas.find() else { return true };
    assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
    writeln!(std::io::stdout().lock(), "skipped: {missing}").unwrap();
    false
}

fn big() -> Compiled {
    let options = Options::new("sm_90a".parse().unwrap());
    KernelFile::parse("big.weft", BIG).unwrap().compile(&options).unwrap()
}

fn line_of(text: &str) -> u32 {
    BIG.lines().zip(1..).find(|(line, _)| line.contains(text)).unwrap().1
}

#[test]
fn serial_products_and_spills_are_warnings_at_their_lines() {
    if !ready() {
        return;
    }
    let compiled = big();
    let made = assemble(&compiled.ptx, compiled.target).unwrap();
    let kinds: Vec<_> = made.remarks.iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [RemarkKind::Serial, RemarkKind::Spills], "{:?}", made.remarks);
    let warnings: Vec<_> = made.remarks.iter().map(|r| warning(r, compiled.sources())).collect();
    let shown: Vec<_> = warnings.iter().map(|w| (w.code.to_string(), compiled.place(w.span))).collect();
    let kernel = format!("big.weft:{}", line_of("kernel big"));
    assert_eq!(shown[0], ("E0620".into(), kernel));
    assert_eq!(shown[1].0, "E0621");
    assert!(shown[1].1.starts_with("big.weft:"), "{shown:?}");
    for w in &warnings {
        assert!(Page::find(&w.code.to_string()).is_some() && !w.message.contains("ptxas"), "{w}");
    }
}

#[test]
fn an_accumulator_read_in_flight_is_a_remark() {
    if !ready() {
        return;
    }
    let made = assemble(EARLY, "sm_90a".parse().unwrap()).unwrap();
    let [remark] = &made.remarks[..] else { panic!("{:?}", made.remarks) };
    assert_eq!((remark.kind, remark.kernel.as_deref()), (RemarkKind::Serial, Some("early")));
    assert_eq!(remark.source, Some(("early.weft".into(), 8, 9)), "{remark:?}");
}

#[test]
fn the_linker_reports_the_same_remarks() {
    let library = match JitLink::get() {
        Ok(library) => library,
        Err(e) => {
            assert!(std::env::var_os("WEFT_REQUIRE_NVJITLINK").is_none(), "{e}");
            return;
        }
    };
    let compiled = big();
    let input = [Input::Ptx("kernel.ptx", &compiled.ptx)];
    let (_, log) = library.link_with_log("sm_90a", None, &input).unwrap();
    let kinds: Vec<_> = remarks(&log, &compiled.ptx).iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [RemarkKind::Serial, RemarkKind::Spills], "{log}");
}

#[test]
fn remarks_are_errors_if_the_environment_requests_it() {
    if !ready() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("big.weft"), BIG).unwrap();
    let run = |strict: &str| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(["compile", "big.weft", "--emit", "cubin", "-o", "big.cubin"]);
        command.current_dir(place.path()).env("WEFT_STRICT_PTXAS", strict).output().unwrap()
    };
    for (strict, succeeds) in [("0", true), ("1", false)] {
        let out = run(strict);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.success(), succeeds, "{said}");
        assert!(said.contains("warning[E0620]") && said.contains("warning[E0621]"), "{said}");
        assert_eq!(said.contains("with remarks"), !succeeds, "{said}");
    }
}

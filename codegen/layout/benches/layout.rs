//! Speed of the layout algebra: a typical composition takes well under a microsecond.
#![expect(missing_docs, reason = "criterion_group makes a public function")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use weft_layout::{Int, Layout, Tiler, Value, Var, eval, eval_with, parse_layout};

/// `N` is known to be a multiple of 8.
fn resolve(name: &str) -> Option<Int> {
    match name {
        "N" => Some(Int::var(Var { div: 8, ..Var::extent(0, "N") })),
        "M" => Some(Int::var(Var::extent(1, "M"))),
        _ => None,
    }
}

fn layout(text: &str) -> Result<Layout, String> {
    parse_layout(text, &mut resolve).map_err(|e| e.to_string())
}

fn tiler(text: &str) -> Result<Tiler, String> {
    match eval_with(text, &mut resolve).map_err(|e| e.to_string())? {
        Value::Tiler(t) => Ok(t),
        Value::Layout(l) => Ok(l.into()),
        Value::Tuple(t) => Ok(Tiler::from(&t)),
        other => Err(format!("{other} is no tiler")),
    }
}

fn algebra(c: &mut Criterion) -> Result<(), String> {
    for (name, a, b) in [
        ("composition/doc example", "(4,(2,2)):(1,(8,4))", "(2,4):(4,1)"),
        ("composition/row-major tile", "(128,64):(64,1)", "(16,8):(8,128)"),
        ("composition/thread-value", "(128,128):(128,1)", "((8,32),4):((128,1),32)"),
        ("composition/hierarchical", "((4,8),(16,2)):((1,64),(4,512))", "((2,2),(8,4)):((1,2),(4,32))"),
        ("composition/symbolic", "(N,M):(1,N)", "(8,4):(1,8)"),
    ] {
        let (a, b) = (layout(a)?, layout(b)?);
        a.composition(&b).map_err(|e| format!("{name}: {e}"))?;
        c.bench_function(name, |bench| bench.iter(|| black_box(&a).composition(black_box(&b))));
    }
    for (name, a, t) in [
        ("zipped_divide/(256,128) by (64,32)", "(256,128):(128,1)", "(64,32)"),
        ("zipped_divide/symbolic by 512", "(N):(1)", "[512]"),
    ] {
        let (a, t) = (layout(a)?, tiler(t)?);
        a.zipped_divide(&t).map_err(|e| format!("{name}: {e}"))?;
        c.bench_function(name, |bench| bench.iter(|| black_box(&a).zipped_divide(black_box(&t))));
    }
    let l = layout("((4,8),(16,2)):((1,64),(4,512))")?;
    c.bench_function("coalesce", |bench| bench.iter(|| black_box(&l).coalesce()));
    c.bench_function("complement", |bench| bench.iter(|| black_box(&l).complement(&4096.into())));
    c.bench_function("right_inverse", |bench| bench.iter(|| black_box(&l).right_inverse()));
    let coord = 777.into();
    c.bench_function("crd2idx", |bench| bench.iter(|| black_box(&l).crd2idx(black_box(&coord))));
    let text = "composition((4,(2,2)):(1,(8,4)),(2,4):(4,1))";
    c.bench_function("eval/composition as text", |bench| bench.iter(|| eval(black_box(text))));
    Ok(())
}

fn all(c: &mut Criterion) {
    if let Err(error) = algebra(c) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

criterion_group!(benches, all);
criterion_main!(benches);

//! Properties that the tables must have whatever they contain, and facts on which the compiler
//! relies.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;

use proptest::prelude::*;
use weft_isa::*;

fn target(name: &str) -> Target {
    name.parse().unwrap()
}

fn hopper() -> Target {
    target("sm_90a")
}

/// Every combination of values of the columns, whether legal or not.
fn any_form() -> impl Strategy<Value = Form> {
    (
        prop::sample::select(Instr::ALL),
        prop::option::of(prop::sample::select(RedOp::ALL)),
        prop::sample::select(ElemType::ALL),
        prop::sample::select(&[0u8, 1, 2, 3, 4, 8, 16, 255][..]),
        prop::option::of(prop::sample::select(Acc::ALL)),
        prop::sample::select(Sem::ALL),
        prop::option::of(prop::sample::select(Scope::ALL)),
    )
        .prop_map(|(instr, op, ty, vec, acc, sem, scope)| Form { instr, op, ty, vec, acc, sem, scope })
}

fn any_target() -> impl Strategy<Value = Target> {
    prop::sample::select(Target::all().collect::<Vec<_>>())
}

/// `form` with the column an error names set to one of the words it expects.
fn repaired(form: Form, column: Column, word: &str) -> Form {
    match column {
        Column::Op => Form { op: RedOp::parse(word), ..form },
        Column::Type => Form { ty: ElemType::parse(word).unwrap(), ..form },
        Column::Vec => Form { vec: word.strip_prefix('v').map_or(1, |n| n.parse().unwrap()), ..form },
        Column::Acc => Form { acc: Acc::parse(word), ..form },
        Column::Sem => Form { sem: Sem::parse(word).unwrap(), ..form },
        Column::Scope => Form { scope: Scope::parse(word), ..form },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_check_returns_an_explanation_and_never_panics(form in any_form(), target in any_target()) {
        match check(&form, target) {
            Ok(legal) => {
                prop_assert!(legal.min_ptx() >= target.min_ptx());
                let ptx = legal.ptx("%a", "%s", "%n", |i| format!("%d{i}"));
                prop_assert!(ptx.starts_with(&form.to_string()), "{}", ptx);
            }
            Err(illegal) => {
                prop_assert!(!illegal.expected.is_empty(), "{form:?}");
                prop_assert!((701..=708).contains(&illegal.code()));
                prop_assert!(!illegal.help().is_empty());
                prop_assert!(illegal.to_string().contains(&form.to_string()));
            }
        }
        for width in widths(&form, target) {
            prop_assert_eq!(width.elements * u32::from(form.ty.scalar().bytes()), width.bytes);
            prop_assert!(width.legal.asm().is_some());
        }
    }

    /// Changes one column of a legal form. If the error names a column, then every word that it
    /// expects there makes the form legal.
    #[test]
    fn expected_words_are_legal(pick in any::<prop::sample::Index>(), other in any_form(), column in 0..6usize) {
        let forms: Vec<Form> = legal_forms().collect();
        let legal = forms[pick.index(forms.len())];
        let mut form = legal;
        match Column::ALL[column] {
            Column::Op => form.op = other.op,
            Column::Type => form.ty = other.ty,
            Column::Vec => form.vec = other.vec,
            Column::Acc => form.acc = other.acc,
            Column::Sem => form.sem = other.sem,
            Column::Scope => form.scope = other.scope,
        }
        for target in Target::all().filter(|t| check(&legal, *t).is_ok()) {
            let Err(illegal) = check(&form, target) else { continue };
            match illegal.rule {
                Rule::Column(column) => for word in &illegal.expected {
                    prop_assert!(check(&repaired(form, column, word), target).is_ok(), "{illegal}: {word}");
                },
                Rule::Target => for name in &illegal.expected {
                    prop_assert!(check(&form, name.parse().unwrap()).is_ok(), "{illegal}");
                },
                Rule::Refused => {}
            }
        }
    }
}

#[test]
fn no_form_occurs_twice_and_each_has_a_target() {
    let mut seen = HashSet::new();
    for form in legal_forms() {
        assert!(seen.insert(form), "twice: {form}");
        assert!(Target::all().any(|t| check(&form, t).is_ok()), "no target: {form}");
    }
    assert!(seen.len() > 2500, "{}", seen.len());
}

#[test]
fn register_accesses_in_the_switch_move_4_8_or_16_bytes_and_f64_has_no_vectors() {
    let data = [Instr::LdReduce, Instr::St, Instr::Red];
    for form in legal_forms().filter(|form| data.contains(&form.instr)) {
        assert!([4, 8, 16].contains(&form.bytes()), "{form}");
        assert!(form.ty != ElemType::F64 || form.vec == 1, "{form}");
        assert_eq!(form.scope.is_none(), form.sem == Sem::Weak, "{form}");
    }
}

#[test]
fn fp8_is_for_architecture_and_family_specific_targets() {
    let fp8 = Form::new(Instr::LdReduce, ElemType::E4M3x4).op(RedOp::Add).acc(Acc::F16).vec(4);
    let has: Vec<_> = Target::all().filter(|t| check(&fp8, *t).is_ok()).map(Target::name).collect();
    let expected = "sm_100a sm_100f sm_103a sm_103f sm_107a sm_107f sm_110a sm_110f sm_120a sm_121a";
    assert_eq!(has.join(" "), expected);
    for (name, ptx) in
        [("sm_100a", "8.6"), ("sm_100f", "8.8"), ("sm_103a", "8.8"), ("sm_110f", "9.0"), ("sm_120a", "8.7")]
    {
        assert_eq!(check(&fp8, target(name)).unwrap().min_ptx().to_string(), ptx, "{name}");
    }
    let illegal = check(&fp8, hopper()).unwrap_err();
    assert_eq!((illegal.rule, illegal.expected.join(" ").as_str()), (Rule::Target, expected));
}

#[test]
fn errors_name_the_column_and_the_expected_words() {
    let ld = Form::new(Instr::LdReduce, ElemType::F32).op(RedOp::Add).vec(4).order(Sem::Relaxed, Scope::Sys);
    let red = Form { instr: Instr::Red, ..ld };
    let cases = [
        (Form { ty: ElemType::F16, vec: 1, ..ld }, Column::Vec, "v2 v4 v8"),
        (Form { ty: ElemType::F64, ..ld }, Column::Vec, "-"),
        (Form { ty: ElemType::S64, vec: 1, ..ld }, Column::Op, "min max"),
        (ld.op(RedOp::Min), Column::Op, "add"),
        (ld.acc(Acc::F32), Column::Acc, "-"),
        (Form { ty: ElemType::F16x2, ..ld }.op(RedOp::Max).acc(Acc::F32), Column::Acc, "-"),
        (Form { scope: None, ..ld }, Column::Scope, "cta cluster gpu sys"),
        (Form { sem: Sem::Weak, ..ld }, Column::Scope, "-"),
        (Form { sem: Sem::Release, ..ld }, Column::Sem, "relaxed acquire"),
        (Form { sem: Sem::Weak, scope: None, ..red }, Column::Sem, "-"),
        (Form { instr: Instr::St, ..ld }, Column::Op, "-"),
        (Form { vec: 3, ..ld }, Column::Vec, "- v2 v4"),
    ];
    for (form, column, expected) in cases {
        let illegal = check(&form, hopper()).unwrap_err();
        if (form.instr, form.sem) == (Instr::Red, Sem::Weak) {
            // Two columns are wrong: `red` has no weak form, and its other semantics need a scope.
            assert_eq!(illegal.rule, Rule::Column(Column::Sem));
            assert_eq!(illegal.expected, ["relaxed", "release"]);
        } else {
            assert_eq!(
                (illegal.rule, illegal.expected.join(" ").as_str()),
                (Rule::Column(column), expected),
                "{form}"
            );
        }
    }
    let s64 = check(&Form { ty: ElemType::S64, vec: 1, ..ld }, hopper()).unwrap_err();
    assert_eq!(
        s64.to_string(),
        "`multimem.ld_reduce.relaxed.sys.global.add.s64` does not exist: reduction is add, expected min, max"
    );
    assert_eq!(s64.help(), "use `u64`: two's complement addition is one operation for both signs");
    let ints = check(&Form::new(Instr::St, ElemType::U32).vec(4), hopper()).unwrap_err();
    assert_eq!((ints.code(), ints.expected.as_slice()), (703, ["-"].as_slice()));
    assert!(ints.help().starts_with("use `f32`: a store moves bits"), "{}", ints.help());
    let max = check(&Form { ty: ElemType::F16x2, ..red }.op(RedOp::Max), hopper()).unwrap_err();
    assert_eq!(max.rule, Rule::Refused);
}

#[test]
fn assembly_is_spelled_for_llvm() {
    let asm = |form: Form, name: &str| check(&form, target(name)).unwrap().asm();
    let ld = Form::new(Instr::LdReduce, ElemType::F32).op(RedOp::Add).vec(4).order(Sem::Relaxed, Scope::Sys);
    let got = asm(ld, "sm_90a").unwrap();
    assert_eq!(got.text, "multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {$0, $1, $2, $3}, [$4];");
    assert_eq!(got.constraints, "=f,=f,=f,=f,l,~{memory}");
    assert_eq!((got.outputs, got.inputs), (vec![Reg::F32; 4], vec![Input::Address]));

    let st = asm(Form::new(Instr::St, ElemType::F16).vec(2), "sm_90").unwrap();
    assert_eq!(st.text, "multimem.st.weak.global.v2.f16 [$0], {$1, $2};");
    assert_eq!(st.constraints, "l,h,h,~{memory}");

    let bulk = asm(Form::new(Instr::CpReduceBulk, ElemType::F16).op(RedOp::Add), "sm_90").unwrap();
    assert_eq!(
        bulk.text,
        "multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [$0], [$1], $2;"
    );
    assert_eq!(bulk.inputs, [Input::Address, Input::SharedAddress, Input::Bytes]);

    let exchange =
        asm(Form::new(Instr::GlobalAtom, ElemType::B64).order(Sem::AcqRel, Scope::Sys), "sm_90").unwrap();
    assert_eq!(exchange.text, "atom.acq_rel.sys.global.exch.b64 $0, [$1], $2;");
    assert_eq!(exchange.constraints, "=l,l,l,~{memory}");

    assert_eq!(asm(Form::new(Instr::St, ElemType::E4M3).vec(4), "sm_100a"), None);
}

#[test]
fn widths_go_from_16_bytes_down() {
    let spelled = |form: Form, name: &str| -> Vec<String> {
        widths(&form, target(name)).iter().map(|w| format!("{}: {}", w.elements, w.legal.form())).collect()
    };
    let ld = |ty| Form::new(Instr::LdReduce, ty).op(RedOp::Add);
    assert_eq!(
        spelled(ld(ElemType::BF16).acc(Acc::F32), "sm_90a"),
        [
            "8: multimem.ld_reduce.weak.global.add.acc::f32.v4.bf16x2",
            "4: multimem.ld_reduce.weak.global.add.acc::f32.v2.bf16x2",
            "2: multimem.ld_reduce.weak.global.add.acc::f32.bf16x2",
        ]
    );
    assert_eq!(spelled(ld(ElemType::F64), "sm_90a"), ["1: multimem.ld_reduce.weak.global.add.f64"]);
    assert_eq!(spelled(ld(ElemType::S64), "sm_90a"), ["1: multimem.ld_reduce.weak.global.add.u64"]);
    assert_eq!(spelled(ld(ElemType::E5M2), "sm_90a"), [""; 0]);
    assert_eq!(spelled(ld(ElemType::E5M2), "sm_100a").len(), 3);

    let st = |ty| Form::new(Instr::St, ty);
    assert_eq!(
        spelled(st(ElemType::U32), "sm_90a"),
        [
            "4: multimem.st.weak.global.v4.f32",
            "2: multimem.st.weak.global.v2.f32",
            "1: multimem.st.weak.global.u32"
        ]
    );
    assert_eq!(
        spelled(st(ElemType::B8), "sm_90a"),
        [
            "16: multimem.st.weak.global.v4.f32",
            "8: multimem.st.weak.global.v2.f32",
            "4: multimem.st.weak.global.b32"
        ]
    );
    assert_eq!(
        spelled(st(ElemType::U64), "sm_90a"),
        ["2: multimem.st.weak.global.v4.f32", "1: multimem.st.weak.global.u64"]
    );
    let strong = st(ElemType::U64).order(Sem::Relaxed, Scope::Sys);
    assert_eq!(spelled(strong, "sm_90a"), ["1: multimem.st.relaxed.sys.global.u64"]);
}

#[test]
fn targets_and_versions_parse() {
    assert_eq!(hopper().to_string(), "sm_90a");
    assert_eq!((target("sm_103f").family(), target("sm_103f").number()), (100, 103));
    for bad in ["", "sm_", "sm_90x", "90a", "sm_80", "compute_90", "sm_9é"] {
        assert!(bad.parse::<Target>().is_err(), "{bad}");
    }
    let unknown = "sm_80".parse::<Target>().unwrap_err().to_string();
    assert!(unknown.starts_with("unknown target `sm_80`; known: sm_90, sm_90a, "), "{unknown}");
    assert_eq!("8.6".parse(), Ok(PtxVersion::new(8, 6)));
    assert_eq!(PtxVersion::new(8, 6).llvm_feature(), "+ptx86");
    for bad in ["", "8", "8.", "8.10", "a.b", "8.6.1"] {
        assert!(bad.parse::<PtxVersion>().is_err(), "{bad}");
    }
    assert!(
        Target::all()
            .all(|t| t.llvm_cpu().parse::<Target>().unwrap().min_ptx() <= PtxVersion::llvm_highest())
    );
}

//! The tables of weft-isa against NVIDIA's assembler: every legal row is assembled, everything next to it is
//! refused by both, and the least version is the least.
//!
//! Needs ptxas (`pip install nvidia-cuda-nvcc`); without it the tests say so and pass, unless
//! `WEFT_REQUIRE_PTXAS=1`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use weft::tools::{Tool, ToolError, assemble_ptx, disassemble};
use weft_isa::*;

/// Every version of PTX since the oldest target's, one before it included.
const VERSIONS: [(u8, u8); 17] = [
    (7, 7),
    (7, 8),
    (8, 0),
    (8, 1),
    (8, 2),
    (8, 3),
    (8, 4),
    (8, 5),
    (8, 6),
    (8, 7),
    (8, 8),
    (9, 0),
    (9, 1),
    (9, 2),
    (9, 3),
    (9, 4),
    (9, 5),
];

fn versions() -> impl DoubleEndedIterator<Item = PtxVersion> {
    VERSIONS.iter().map(|(major, minor)| PtxVersion::new(*major, *minor))
}

/// Says it past the test harness, which keeps back what passing tests print.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").unwrap();
}

/// The highest version that the ptxas of this machine knows; none without ptxas.
fn newest() -> Option<PtxVersion> {
    if let Err(missing) = Tool::Ptxas.find() {
        assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
        say("skipped: ptxas not found (pip install nvidia-cuda-nvcc)");
        return None;
    }
    let hopper = target("sm_90a");
    Some(
        versions()
            .rev()
            .find(|version| bad_lines(&[], hopper, *version).is_ok_and(|bad| bad.is_empty()))
            .unwrap(),
    )
}

fn target(name: &str) -> Target {
    name.parse().unwrap()
}

/// The instruction of a form, legal or not, over registers that [`bad_lines`] declares.
fn spelled(form: &Form) -> String {
    let class = form.ty.reg().ptx();
    let data: Vec<String> = (0..form.vec).map(|i| format!("%{class}_{i}")).collect();
    let data = if form.vec == 1 { data[0].clone() } else { format!("{{{}}}", data.join(", ")) };
    let operands = match form.instr {
        Instr::LdReduce | Instr::GlobalLd => format!("{data}, [%address]"),
        Instr::GlobalAtom => format!("{data}, [%address], {data}"),
        Instr::CpBulk | Instr::CpReduceBulk => "[%address], [%shared], %bytes".into(),
        _ => format!("[%address], {data}"),
    };
    format!("{form} {operands};")
}

/// A kernel of these instructions over the registers that [`spelled`] names, and the number of its first line.
fn kernel(instructions: &[String], target: Target, version: PtxVersion) -> (String, usize) {
    let mut head = format!(
        ".version {version}\n.target {target}\n.address_size 64\n.visible .entry kernel(.param .u64 address) {{\n\
         .reg .b64 %address; .reg .b32 %shared, %bytes;\n"
    );
    for class in ["b8", "b16", "b32", "b64", "f32", "f64"] {
        head += &format!(".reg .{class} %{class}_<8>;\n");
    }
    head += "ld.param.u64 %address, [address];\n";
    (format!("{head}{}\nret; }}\n", instructions.join("\n")), head.lines().count() + 1)
}

/// Assembles the instructions in one kernel. Returns which of them (by index) ptxas complains of; an error where
/// it complains of none of them but fails.
fn bad_lines(
    instructions: &[String],
    target: Target,
    version: PtxVersion,
) -> Result<BTreeSet<usize>, String> {
    let (ptx, first) = kernel(instructions, target, version);
    match assemble_ptx(&ptx, target) {
        Ok(_) => Ok(BTreeSet::new()),
        Err(ToolError::Failed { message, .. }) => {
            let numbers = message.lines().filter_map(|line| {
                let (number, _) = line.split_once(", line ")?.1.split_once(';')?;
                number.parse::<usize>().ok()?.checked_sub(first)
            });
            let bad: BTreeSet<usize> = numbers.collect();
            if bad.is_empty() { Err(message.lines().take(3).collect::<Vec<_>>().join("\n")) } else { Ok(bad) }
        }
        Err(other) => panic!("{other}"),
    }
}

/// The forms that ptxas accepts and those that it does not.
fn judge(forms: &[Form], target: Target, version: PtxVersion) -> (Vec<Form>, Vec<Form>) {
    let lines: Vec<String> = forms.iter().map(spelled).collect();
    let bad =
        bad_lines(&lines, target, version).unwrap_or_else(|message| panic!("{target} {version}: {message}"));
    let judged = forms.iter().enumerate().partition::<Vec<_>, _>(|(i, _)| !bad.contains(i));
    (judged.0.into_iter().map(|x| *x.1).collect(), judged.1.into_iter().map(|x| *x.1).collect())
}

fn show(forms: &[Form]) -> String {
    let shown: Vec<String> = forms.iter().take(10).map(spelled).collect();
    format!("{} forms, such as\n{}", forms.len(), shown.join("\n"))
}

/// Every combination of the columns for an instruction, sensible or not.
fn combinations(instr: Instr) -> Vec<Form> {
    fn none_or<T: Copy>(all: &[T]) -> Vec<Option<T>> {
        std::iter::once(None).chain(all.iter().map(|x| Some(*x))).collect()
    }
    let mut forms = Vec::new();
    for op in none_or(RedOp::ALL) {
        for ty in ElemType::ALL {
            for vec in [1, 2, 4, 8] {
                for acc in none_or(Acc::ALL) {
                    for sem in Sem::ALL {
                        for scope in none_or(Scope::ALL) {
                            forms.push(Form { instr, op, ty: *ty, vec, acc, sem: *sem, scope });
                        }
                    }
                }
            }
        }
    }
    forms
}

/// The forms of the tables that `target` has by `version`.
fn legal_on(target: Target, version: PtxVersion) -> Vec<Form> {
    let fits = |form: &Form| check(form, target).is_ok_and(|legal| legal.min_ptx() <= version);
    legal_forms().filter(fits).collect()
}

/// Every legal row: all types, widths, ops, accumulators, semantics and scopes. What the tests spell is what
/// the library writes.
#[test]
fn every_legal_form_assembles() {
    let Some(newest) = newest() else { return };
    for target in ["sm_90a", "sm_100a"].map(target) {
        let forms = legal_on(target, newest);
        for form in &forms {
            let ptx = check(form, target)
                .unwrap()
                .ptx("%address", "%shared", "%bytes", |i| format!("%{}_{i}", form.ty.reg().ptx()));
            assert_eq!(ptx, spelled(form));
        }
        let (accepted, rejected) = judge(&forms, target, newest);
        assert!(rejected.is_empty(), "{target}: ptxas rejects {}", show(&rejected));
        let left_out = legal_forms().filter(|form| check(form, target).is_ok()).count() - forms.len();
        say(&format!(
            "{target}: ptxas assembles {} legal forms; {left_out} need a newer one",
            accepted.len()
        ));
    }
}

/// For the instructions whose tables claim to be whole: ptxas rejects every combination of words that [`check`]
/// rejects. The exceptions, where ptxas takes more than the manual has, stand in the tables (rows that are
/// refused, a column that it ignores); those it must take.
#[test]
fn every_other_combination_is_rejected_by_both() {
    let Some(newest) = newest() else { return };
    for family in families().iter().filter(|family| family.covers_all) {
        let all = combinations(family.instr);
        for target in ["sm_90a", "sm_100a"].map(target) {
            let refused = |form: &Form| check(form, target).is_err_and(|why| why.rule == Rule::Refused);
            let taken = |form: &Form| {
                let without = Form { acc: None, ..*form };
                let ignored = family.ignores == Some(Column::Acc) && form.acc.is_some();
                refused(form) || ignored && (check(&without, target).is_ok() || refused(&without))
            };
            let illegal = all.iter().copied().filter(|form| check(form, target).is_err());
            let (exceptions, illegal): (Vec<_>, Vec<_>) = illegal.partition(taken);
            let (accepted, rejected) = judge(&illegal, target, newest);
            assert!(accepted.is_empty(), "{target}: we reject and ptxas takes {}", show(&accepted));
            let (taken, not_taken) = judge(&exceptions, target, newest);
            assert!(not_taken.is_empty(), "{target}: no exceptions: {}", show(&not_taken));
            let counts = format!("both reject {} forms, we alone {}", rejected.len(), taken.len());
            say(&format!("{target}: {}: {counts}", family.instr));
        }
    }
}

/// On every target, at the least version everything assembles, and at the version before nothing does.
#[test]
fn the_least_version_is_the_least() {
    let Some(newest) = newest() else { return };
    let before = |version: PtxVersion| versions().rev().find(|v| *v < version).unwrap();
    for target in Target::all().filter(|t| t.min_ptx() <= newest) {
        let too_old = bad_lines(&[], target, before(target.min_ptx()));
        assert!(too_old.is_err(), "{target} exists before PTX {}", target.min_ptx());
        let mut by_version: BTreeMap<PtxVersion, Vec<Form>> = BTreeMap::new();
        for form in
            legal_on(target, newest).into_iter().filter(|form| form.scope.is_none_or(|s| s == Scope::Sys))
        {
            by_version.entry(check(&form, target).unwrap().min_ptx()).or_default().push(form);
        }
        for (version, forms) in by_version {
            let (_, rejected) = judge(&forms, target, version);
            assert!(rejected.is_empty(), "{target}: PTX {version} lacks {}", show(&rejected));
            if version > target.min_ptx() {
                let (accepted, _) = judge(&forms, target, before(version));
                assert!(accepted.is_empty(), "{target}: before PTX {version} there is {}", show(&accepted));
            }
        }
    }
}

/// In SASS `multimem.ld_reduce` is LDGMC: no row is taken and then dropped. (The results are stored, since ptxas
/// drops even a relaxed load whose result is dead.)
#[test]
fn each_ld_reduce_is_an_instruction_of_the_machine() {
    let Some(newest) = newest() else { return };
    if let Err(missing) = Tool::Nvdisasm.find() {
        assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
        return say("skipped: nvdisasm not found (pip install nvidia-cuda-nvdisasm)");
    }
    for target in ["sm_90a", "sm_100a"].map(target) {
        let forms = legal_on(target, newest).into_iter().filter(|form| form.instr == Instr::LdReduce);
        let lines: Vec<String> = forms
            .map(|form| {
                let class = form.ty.reg().ptx();
                let store = |i| format!(" st.volatile.global.{class} [%address], %{class}_{i};");
                spelled(&form) + &(0..form.vec).map(store).collect::<String>()
            })
            .collect();
        let (ptx, _) = kernel(&lines, target, newest);
        let sass = disassemble(&assemble_ptx(&ptx, target).unwrap()).unwrap();
        assert_eq!(sass.matches("LDGMC").count(), lines.len(), "{target}");
    }
}

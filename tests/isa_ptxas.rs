//! Compares the tables of weft-isa with NVIDIA's assembler: every legal row assembles, both reject
//! everything next to it, and the lowest version is the lowest that works.
//!
//! It needs ptxas (`pip install nvidia-cuda-nvcc`). Without it the tests print a message and pass,
//! unless `WEFT_REQUIRE_PTXAS=1`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use weft::tools::{Tool, ToolError, assemble, assemble_ptx, disassemble};
use weft_isa::*;

/// Every version of PTX since that of the oldest target, and one version before it.
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

/// Prints a text in spite of the test harness, which captures the output of passing tests.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").unwrap();
}

/// The highest version that the machine's ptxas supports, or `None` without ptxas.
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

/// The instruction of a form, legal or not, with registers that [`bad_lines`] declares.
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

/// A kernel with these instructions and the registers that [`spelled`] names, and the number of its
/// first line.
fn kernel(instructions: &[String], target: Target, version: PtxVersion) -> (String, usize) {
    let mut head = format!(
        ".version {version}\n.target {target}\n.address_size 64\n.visible .entry kernel(.param .u64 address) {{\n\
         .reg .b64 %address; .reg .b32 %shared, %bytes, %barrier; .reg .b16 %mask;\n"
    );
    for class in ["b8", "b16", "b32", "b64", "f32", "f64"] {
        head += &format!(".reg .{class} %{class}_<128>;\n");
    }
    head += "ld.param.u64 %address, [address];\n";
    (format!("{head}{}\nret; }}\n", instructions.join("\n")), head.lines().count() + 1)
}

/// Assembles the instructions in one kernel. Returns the indices of those that ptxas rejects. It is
/// an error if ptxas fails without rejecting one.
fn bad_lines(
    instructions: &[String],
    target: Target,
    version: PtxVersion,
) -> Result<BTreeSet<usize>, String> {
    let (ptx, first) = kernel(instructions, target, version);
    // Its remarks on isolated instructions do not matter.
    match assemble(&ptx, target) {
        Ok(_) => Ok(BTreeSet::new()),
        Err(ToolError::Failed { message, .. }) => {
            let numbers = message.lines().filter_map(|line| {
                let (number, what) = line.split_once(", line ")?.1.split_once(';')?;
                let number = what.trim_start().starts_with("error").then_some(number)?;
                number.parse::<usize>().ok()?.checked_sub(first)
            });
            let bad: BTreeSet<usize> = numbers.collect();
            if bad.is_empty() { Err(message.lines().take(3).collect::<Vec<_>>().join("\n")) } else { Ok(bad) }
        }
        Err(other) => panic!("{other}"),
    }
}

/// Divides the forms into those that ptxas accepts and those that it rejects.
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

/// Every combination of the columns for an instruction, whether it makes sense or not.
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

/// The forms of the tables that `target` has in `version`.
fn legal_on(target: Target, version: PtxVersion) -> Vec<Form> {
    let fits = |form: &Form| check(form, target).is_ok_and(|legal| legal.min_ptx() <= version);
    legal_forms().filter(fits).collect()
}

/// Checks every legal row: all types, widths, ops, accumulators, semantics and scopes. The text of
/// the tests equals that of the library.
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

/// For the instructions whose tables are complete, checks that ptxas rejects every combination of
/// words that [`check`] rejects. The tables mark the exceptions, where ptxas accepts more than the
/// manual has (rows that are rejected, a column that it ignores). ptxas must accept these.
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

/// Checks that on every target everything assembles in the lowest version, and nothing in the
/// version before it.
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

/// Checks that `multimem.ld_reduce` is LDGMC in SASS, so that ptxas does not accept a row and then
/// drop it. (The results are stored, because ptxas drops even a relaxed load whose result is not
/// used.)
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

/// Registers of a class: `{%b32_0, %b32_1}`.
fn registers(class: &str, count: u32) -> String {
    let names: Vec<String> = (0..count).map(|i| format!("%{class}_{i}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// The registers in which `threads` hold elements of a type.
fn fragment(ty: &str, elements: u32, threads: u32) -> String {
    let bits = match ty {
        "bf16" | "f16" => 16,
        "tf32" | "f32" | "s32" => 32,
        _ => 8,
    };
    registers(if ty == "f32" { "f32" } else { "b32" }, (elements * bits / (32 * threads)).max(1))
}

/// The instruction of a form, legal or not, written without the tables.
fn written(choice: &Choice) -> String {
    let words: Vec<&str> = choice.words.iter().map(String::as_str).collect();
    let number = |i: usize| words[i].parse::<u32>().unwrap();
    let dotted =
        |words: &[&str]| words.iter().filter(|w| **w != "-").map(|w| format!(".{w}")).collect::<String>();
    match *words {
        [a, b, sum, k, n, from, a_major, b_major] => {
            let transposed = |major| if major == "mn" { ", 1" } else { ", 0" };
            let short = |ty| ["bf16", "f16"].contains(&ty);
            let mut behind = if sum == "s32" { "1".to_owned() } else { "1, 1, 1".into() };
            if short(a) || short(b) || a_major == "mn" || b_major == "mn" {
                behind += if from == "shared" || a_major == "mn" { transposed(a_major) } else { "" };
                behind += transposed(b_major);
            }
            let d = fragment(sum, 64 * number(4), 128);
            let a_regs = if from == "regs" { fragment(a, 64 * number(3), 128) } else { "%b64_0".into() };
            format!("wgmma.mma_async.sync.aligned.m64n{n}k{k}.{sum}.{a}.{b} {d}, {a_regs}, %b64_1, {behind};")
        }
        [a, b, sum, k] => {
            let (k_, d) = (number(3), fragment(sum, 128, 32));
            let (x, y) = (fragment(a, 16 * k_, 32), fragment(b, 8 * k_, 32));
            format!("mma.sync.aligned.m16n8k{k}.row.col.{sum}.{a}.{b}.{sum} {d}, {x}, {y}, {d};")
        }
        [ty, num, trans] => {
            let data = registers("b32", num[1..].parse().unwrap());
            let name = choice.instruction.name;
            let operands = match name {
                "ldmatrix" => format!("{data}, [%shared]"),
                _ => format!("[%shared], {data}"),
            };
            format!("{name}.sync.aligned.m8n8{}.shared.{ty} {operands};", dotted(&[num, trans]))
        }
        [first, second, third, fourth, fifth] => {
            // The type comes first in reductions.
            let reduction = choice.instruction.name == "cp.reduce.async.bulk";
            let (to, from, done) = if reduction { (second, third, fourth) } else { (first, second, third) };
            let at = |space: &str| if space == "global" { "[%address]" } else { "[%shared]" };
            let mut operands = format!("{}, {}, %bytes", at(to), at(from));
            operands += if done == "bulk_group" { "" } else { ", [%barrier]" };
            let rest = if reduction { [fifth, first] } else { [fourth, fifth] };
            if !reduction {
                operands += if fourth == "-" { "" } else { ", %mask" };
                operands += if fifth == "-" { "" } else { ", %b64_0" };
            }
            format!("{}{}{} {operands};", choice.instruction.name, dotted(&[to, from, done]), dotted(&rest))
        }
        [way] => format!("setmaxnreg.{way}.sync.aligned.u32 232;"),
        [from, hint] => {
            let policy = if hint == "-" { "" } else { ", %b64_0" };
            format!("cp.async.bulk.prefetch.L2{} [%address], %bytes{policy};", dotted(&[from, hint]))
        }
        _ => panic!("{choice:?}"),
    }
}

/// Every combination of an instruction's words. For products of warpgroups there are two numbers of
/// columns: one that all types have, and one that products of 8-bit integers lack.
fn every_choice(instruction: &'static Instruction) -> Vec<Choice> {
    let one = vec![Choice::new(instruction, &[])];
    instruction.columns.iter().enumerate().fold(one, |forms, (column, name)| {
        let all = instruction.words(column);
        let words: Vec<&str> = if *name == "n" { vec!["8", "40"] } else { all };
        let with = |form: &Choice, word: &str| {
            let mut form = form.clone();
            form.words.push(word.to_owned());
            form
        };
        forms.iter().flat_map(|form| words.iter().map(|word| with(form, word)).collect::<Vec<_>>()).collect()
    })
}

/// The forms that ptxas rejects. It finds some errors only if there are none of other kinds, so the
/// accepted forms are assembled again without the rejected ones.
fn rejected(forms: &[&Choice], target: Target, version: PtxVersion) -> BTreeSet<usize> {
    let lines: Vec<String> = forms.iter().map(|form| written(form)).collect();
    let mut bad = BTreeSet::new();
    loop {
        let left: Vec<usize> = (0..lines.len()).filter(|i| !bad.contains(i)).collect();
        let text: Vec<String> = left.iter().map(|i| lines[*i].clone()).collect();
        let more = bad_lines(&text, target, version)
            .unwrap_or_else(|message| panic!("{target} {version}: {message}"));
        if more.is_empty() {
            return bad;
        }
        bad.extend(more.iter().map(|i| left[*i]));
    }
}

/// Checks the tables of matrix instructions and bulk copies. ptxas accepts what they allow in the
/// lowest version and not before it. It rejects every other combination of their words, and accepts
/// those that only the tables reject.
#[test]
fn choices_are_legal_if_ptxas_accepts_them() {
    let Some(newest) = newest() else { return };
    let before = |version: PtxVersion| versions().rev().find(|v| *v < version).unwrap();
    for target in ["sm_90", "sm_90a", "sm_100a", "sm_120", "sm_120a"].map(target) {
        for instruction in instructions() {
            let all: Vec<Choice> = choices(instruction).chain(every_choice(instruction)).collect();
            let mut by_version: BTreeMap<PtxVersion, Vec<&Choice>> = BTreeMap::new();
            let (mut illegal, mut refused) = (Vec::new(), Vec::new());
            for choice in &all {
                match choice.check(target) {
                    Ok(spelling) => {
                        let ptx = spelling.ptx(|name| operand(choice, name));
                        assert_eq!(ptx, written(choice));
                        by_version.entry(spelling.min_ptx()).or_default().push(choice);
                    }
                    Err(no) if no.reason == Reason::Refused => refused.push(choice),
                    // On these targets ptxas only warns about multicast to one CTA, which is not a
                    // multicast.
                    Err(_)
                        if choice
                            .to_string()
                            .contains("shared::cta.global.mbarrier::complete_tx::bytes.multicast")
                            && target.variant() == Variant::Plain => {}
                    Err(_) => illegal.push(choice),
                }
            }
            let taken = illegal.len() - rejected(&illegal, target, newest).len();
            let which = || {
                let bad = rejected(&illegal, target, newest);
                illegal
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| !bad.contains(i))
                    .map(|x| written(x.1))
                    .take(9)
                    .collect::<Vec<_>>()
            };
            assert_eq!(taken, 0, "{target}: we reject and ptxas takes {:#?}", which());
            assert!(rejected(&refused, target, newest).is_empty(), "{target}: {refused:?}");
            for (version, forms) in &by_version {
                let bad = rejected(forms, target, *version);
                assert!(
                    bad.is_empty(),
                    "{target} {version}: ptxas rejects {}",
                    written(forms[*bad.first().unwrap()])
                );
                if *version > target.min_ptx() {
                    let bad = rejected(forms, target, before(*version));
                    assert_eq!(
                        bad.len(),
                        forms.len(),
                        "{target}: {version} is not the least of {}",
                        instruction.name
                    );
                }
            }
            let legal: usize = by_version.values().map(Vec::len).sum();
            say(&format!(
                "{target}: {}: ptxas takes {legal} forms and rejects {}",
                instruction.name,
                illegal.len()
            ));
        }
    }
}

/// The text that [`written`] uses for an operand of the tables.
fn operand(choice: &Choice, name: &str) -> String {
    let word = |column: &str| {
        let at = choice.instruction.columns.iter().position(|c| *c == column);
        at.map_or("", |at| choice.words[at].as_str())
    };
    let number = |column: &str, default: u32| word(column).parse().unwrap_or(default);
    let of_warpgroup = choice.instruction.name == "wgmma.mma_async";
    let (rows, threads) = if of_warpgroup { (64, 128) } else { (16, 32) };
    match name {
        "D" if !word("num").is_empty() => registers("b32", word("num")[1..].parse().unwrap()),
        "D" | "C" => fragment(word("sum"), rows * number("n", 8), threads),
        "A" if word("from") == "shared" => "%b64_0".into(),
        "A" => fragment(word("a"), rows * number("k", 0), threads),
        "B" if of_warpgroup => "%b64_1".into(),
        "B" => fragment(word("b"), 8 * number("k", 0), threads),
        "SCALE" => "1".into(),
        "G" => "%address".into(),
        "S" | "TO" => "%shared".into(),
        "N" if !word("way").is_empty() => "232".into(),
        "N" => "%bytes".into(),
        "M" => "%barrier".into(),
        "MASK" => "%mask".into(),
        "POLICY" => "%b64_0".into(),
        other => panic!("an operand {other}"),
    }
}

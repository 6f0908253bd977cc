//! The value that a loop waits for, derived from the comparison of the value that it reads.
//!
//! The code after the read is followed with its data flow: the registers that hold the value, and
//! the predicates that follow from the comparison. Comparisons of other values, such as counters of
//! rounds, do not matter.

use super::super::run::Run;
use super::super::warp::Group;
use crate::exec::code::Code;
use crate::model::WarpSlot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::PoisonError;

/// The number of instructions after the read in which the comparison and the branch are searched.
const NEAR: usize = 64;
/// The largest length of a way back to the read, in instructions.
const LOOP: usize = 4096;

/// For each comparison: its names, the index of its negation, the index with exchanged operands,
/// and the words for a value that fulfils it.
const COMPARISONS: [(&[&str], usize, usize, &str); 6] = [
    (&["eq"], 1, 0, ""),
    (&["ne"], 0, 1, "a value other than "),
    (&["lt", "lo"], 5, 4, "less than "),
    (&["le", "ls"], 4, 5, "at most "),
    (&["gt", "hi"], 3, 2, "more than "),
    (&["ge", "hs"], 2, 3, "at least "),
];

/// The comparison that ends a loop which reads a value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    /// The program counter of the comparison, and the number of its operand with the wanted value.
    pc: usize,
    operand: usize,
    /// The index of the comparison that the value fulfils when the loop ends.
    kind: usize,
    signed: bool,
}

/// The value of the group's last read for which it waits, such as `2` or `at least 7`.
pub(super) fn awaited(run: &Run, w: WarpSlot, g: &Group) -> Option<String> {
    let warp = &run.warps[w];
    let code = run.code_of(w);
    let consts = &run.grids[run.ctas[warp.cta].grid].consts;
    let regs = &warp.frames.get(g.frame)?.regs;
    let (lane, poll) = (g.mask.trailing_zeros().min(31) as usize, &g.poll);
    let mut known = code.endings.lock().unwrap_or_else(PoisonError::into_inner);
    let ending = (*known.entry(poll.pc).or_insert_with(|| Text::new(code).ending(poll.pc as usize)))?;
    let operand = code.insts.get(ending.pc)?.op.compared()?.get(ending.operand).copied()?;
    let wanted = operand.value(regs, consts, lane)?;
    // If it is fulfilled, the loop waits for another element of a vector.
    let bits = 8 * u32::from(poll.bytes.clamp(1, 8));
    let order = match ending.signed {
        true => sext(poll.value, bits).cmp(&sext(wanted, bits)),
        false => (poll.value << (64 - bits)).cmp(&(wanted << (64 - bits))),
    };
    let fulfilled =
        [order.is_eq(), order.is_ne(), order.is_lt(), order.is_le(), order.is_gt(), order.is_ge()];
    let value = number(wanted, poll.bytes, ending.signed);
    (!fulfilled[ending.kind]).then(|| format!("{}{value}", COMPARISONS[ending.kind].3))
}

/// Formats a value of this number of bytes.
pub(super) fn number(value: u64, bytes: u8, signed: bool) -> String {
    let bits = 8 * u32::from(bytes.clamp(1, 8));
    if signed { sext(value, bits).to_string() } else { (value << (64 - bits) >> (64 - bits)).to_string() }
}

fn sext(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)) as i64 >> (64 - bits)
}

/// The text of a module.
struct Text<'c> {
    code: &'c Code,
    lines: Vec<&'c str>,
    /// The lines of each label. Functions can have labels of the same name.
    labels: BTreeMap<&'c str, Vec<u32>>,
}

impl<'c> Text<'c> {
    fn new(code: &'c Code) -> Text<'c> {
        let lines: Vec<&str> = code.text.lines().collect();
        let mut labels: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (line, text) in (1..).zip(&lines) {
            let label = text.split_once(':').map_or("", |(label, _)| label.trim());
            if !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '%'))
            {
                labels.entry(label).or_default().push(line);
            }
        }
        Text { code, lines, labels }
    }

    /// Finds the comparison that ends the loop around a read.
    fn ending(&self, read: usize) -> Option<Ending> {
        let mut copies: BTreeSet<&str> = self.registers(read).first().copied().into_iter().collect();
        // The predicates that follow from the comparison, and whether they are its negation.
        let mut results: BTreeMap<&str, bool> = BTreeMap::new();
        let mut found: Option<Ending> = None;
        let mut pc = read + 1;
        for _ in 0..NEAR {
            let guarded = self.code.insts.get(pc)?.guard.is_some();
            if self.operation(pc) == "bra" {
                let predicate = self.guard(pc).and_then(|(p, not)| Some(*results.get(p)? != not));
                match (&mut found, predicate) {
                    (Some(ending), Some(negated)) => {
                        if self.leaves_if_taken(pc, read)? == negated {
                            ending.kind = COMPARISONS[ending.kind].1;
                        }
                        return found;
                    }
                    // Behind another end of the loop, comparisons no longer belong to it.
                    _ if guarded && self.leaves_if_taken(pc, read) != Some(true) => return None,
                    _ => {}
                }
                pc = if guarded { pc + 1 } else { self.target(pc)? };
                continue;
            }
            let all = self.registers(pc);
            if let Some((&to, from)) = all.split_first() {
                let copied = from.iter().any(|x| copies.contains(x));
                let follows = from.iter().find_map(|x| results.get(x).copied());
                match (self.operation(pc), follows) {
                    ("mov" | "cvt", _) if copied => _ = copies.insert(to),
                    ("setp", _) if copied && found.is_none() => {
                        let value = from.iter().take(2).position(|x| copies.contains(x))?;
                        found = Some(self.comparison(pc, value)?);
                        results.insert(to, false);
                    }
                    (operation @ ("not" | "and" | "or" | "setp" | "mov"), Some(negated)) => {
                        results.insert(to, negated != (operation == "not"));
                    }
                    _ => {
                        copies.remove(to);
                        results.remove(to);
                    }
                }
            }
            pc += 1;
        }
        None
    }

    /// The comparison at `pc` of the operand number `value`.
    fn comparison(&self, pc: usize, value: usize) -> Option<Ending> {
        let mut parts = self.mnemonic(pc).split('.').skip(1);
        let name = parts.next()?;
        let kind = COMPARISONS.iter().position(|(names, ..)| names.contains(&name))?;
        let kind = if value == 0 { kind } else { COMPARISONS[kind].2 };
        Some(Ending { pc, operand: 1 - value, kind, signed: parts.last()?.starts_with('s') })
    }

    fn mnemonic(&self, pc: usize) -> &'c str {
        self.code.insts.get(pc).map_or("", |inst| &self.code.mnemonics[inst.mnemonic as usize])
    }

    /// The first part of the mnemonic.
    fn operation(&self, pc: usize) -> &'c str {
        self.mnemonic(pc).split('.').next().unwrap_or_default()
    }

    /// The text of an instruction: its guard, and its operands.
    fn statement(&self, pc: usize) -> Option<(&'c str, &'c str)> {
        let (inst, mnemonic) = (self.code.insts.get(pc)?, self.mnemonic(pc));
        let line = self.lines.get((inst.line as usize).checked_sub(1)?)?;
        let before = self.code.insts.get(..pc)?.iter().rev().take_while(|other| other.line == inst.line);
        let same = before.filter(|other| other.mnemonic == inst.mnemonic).count();
        line.split(';').filter_map(|part| part.split_once(mnemonic)).nth(same)
    }

    /// The operands of an instruction as they are in the text. The first one is its result.
    fn registers(&self, pc: usize) -> Vec<&'c str> {
        let Some((_, text)) = self.statement(pc) else { return Vec::new() };
        let words = text.split([',', ' ', '\t', '{', '}', '[', ']', '+']);
        words.filter(|word| !word.is_empty()).collect()
    }

    /// The predicate of a guarded instruction, and whether the guard negates it.
    fn guard(&self, pc: usize) -> Option<(&'c str, bool)> {
        let word = self.statement(pc)?.0.split_once('@')?.1.trim();
        Some((word.trim_start_matches('!'), word.starts_with('!')))
    }

    /// The program counter to which a branch goes.
    fn target(&self, pc: usize) -> Option<usize> {
        let label = self.statement(pc)?.1.trim();
        let from = self.code.insts.get(pc)?.line;
        let line = self.labels.get(label)?.iter().copied().min_by_key(|line| line.abs_diff(from))?;
        let at = self.code.insts.partition_point(|inst| inst.line < line);
        (at < self.code.insts.len()).then_some(at)
    }

    /// Whether the branch at `pc` leaves the loop with this read when it is taken, or none if that
    /// is not clear. The way that leaves the loop does not lead back to the read, or only in a
    /// longer way through an outer loop.
    fn leaves_if_taken(&self, pc: usize, read: usize) -> Option<bool> {
        match (self.distance(self.target(pc)?, read), self.distance(pc + 1, read)) {
            (Some(taken), Some(other)) if taken != other => Some(taken > other),
            (Some(_), None) => Some(false),
            (None, Some(_)) => Some(true),
            _ => None,
        }
    }

    /// The smallest number of instructions from one to another.
    fn distance(&self, from: usize, to: usize) -> Option<usize> {
        let mut seen = BTreeSet::from([from]);
        let mut next = VecDeque::from([(from, 0)]);
        while let Some((pc, steps)) = next.pop_front().filter(|(_, steps)| *steps < LOOP) {
            if pc == to {
                return Some(steps);
            }
            let Some(inst) = self.code.insts.get(pc) else { continue };
            let operation = self.operation(pc);
            let jump = (operation == "bra").then(|| self.target(pc)).flatten();
            let ends = matches!(operation, "bra" | "ret" | "exit" | "trap" | "brx") && inst.guard.is_none();
            for pc in jump.into_iter().chain((!ends).then_some(pc + 1)) {
                if seen.insert(pc) {
                    next.push_back((pc, steps + 1));
                }
            }
        }
        None
    }
}

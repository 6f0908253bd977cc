//! The value that a loop waits for, derived from the comparison of the value that it reads.

use super::super::run::Run;
use super::super::warp::Group;
use crate::exec::code::{Code, Inst};
use crate::model::WarpSlot;

/// The number of instructions after the read in which the comparison is searched, and after the
/// comparison the branch.
const NEAR: usize = 8;

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

/// The value of the warp's last read for which the group waits, such as `2` or `at least 7`.
pub(super) fn awaited(run: &Run, w: WarpSlot, g: &Group) -> Option<String> {
    let warp = &run.warps[w];
    let code = run.code_of(w);
    let consts = &run.grids[run.ctas[warp.cta].grid].consts;
    let regs = &warp.frames.get(g.frame)?.regs;
    let (lane, poll) = (g.mask.trailing_zeros().min(31) as usize, &warp.poll);
    let first = poll.pc as usize + 1;
    let behind = code.insts.get(first..)?.iter().take(NEAR).zip(first..);
    for (inst, pc) in behind {
        let mnemonic = &code.mnemonics[inst.mnemonic as usize];
        let Some(sources) = inst.op.compared().filter(|_| mnemonic.starts_with("setp.")) else { continue };
        let [a, b] = sources.map(|s| s.value(regs, consts, lane));
        let mut parts = mnemonic.split('.').skip(1);
        let name = parts.next()?;
        let kind = COMPARISONS.iter().position(|(names, ..)| names.contains(&name))?;
        let (kind, wanted) = match (a? == poll.value, b? == poll.value) {
            (true, _) => (kind, b?),
            (_, true) => (COMPARISONS[kind].2, a?),
            _ => continue,
        };
        let until = leaves_if(code, pc, poll.pc as usize)?;
        let kind = if until { kind } else { COMPARISONS[kind].1 };
        let signed = mnemonic.rsplit('.').next()?.starts_with('s');
        let value = number(wanted, poll.bytes, signed);
        return Some(format!("{}{value}", COMPARISONS[kind].3));
    }
    None
}

/// Formats a value of this number of bytes.
pub(super) fn number(value: u64, bytes: u8, signed: bool) -> String {
    let bits = 8 * u32::from(bytes.clamp(1, 8));
    let shifted = value << (64 - bits);
    if signed { (shifted as i64 >> (64 - bits)).to_string() } else { (shifted >> (64 - bits)).to_string() }
}

/// Whether the loop is left if the predicate of the comparison at `pc` is true, or none if that is
/// not clear. `read` is an instruction of the loop.
fn leaves_if(code: &Code, pc: usize, read: usize) -> Option<bool> {
    let behind = code.insts.get(pc + 1..)?.iter().take(NEAR);
    let branch = behind.filter(|i| i.guard.is_some()).find(|i| is_branch(code, i))?;
    let (_, flip) = branch.guard?;
    let label = code.line(branch.line).split_whitespace().last()?.trim_end_matches(';').to_owned() + ":";
    let target = code.text.lines().position(|line| line.trim() == label)? as u32 + 1;
    let taken_stays = target <= code.insts[read].line;
    Some((flip == 0) != taken_stays)
}

fn is_branch(code: &Code, inst: &Inst) -> bool {
    code.mnemonics[inst.mnemonic as usize].split('.').next() == Some("bra")
}

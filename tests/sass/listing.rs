//! Parses the output of nvdisasm into instructions, basic blocks and loops.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// An instruction of SASS.
#[derive(Clone, Debug)]
pub struct Inst {
    /// The opcode with its modifiers, without a predicate.
    pub opcode: String,
    /// Whether a predicate can suppress it.
    pub predicated: bool,
    /// The rest of the line.
    pub operands: String,
}

/// The instructions of a kernel, and the positions of its labels.
pub struct Kernel {
    pub insts: Vec<Inst>,
    labels: BTreeMap<String, usize>,
}

/// One trip of a loop. For the hot loop it is the path through most of its `LDGMC`, and for another
/// loop it is all paths.
#[derive(Debug)]
pub struct HotLoop {
    /// The instructions in the order of execution.
    pub insts: Vec<Inst>,
}

/// The kernels of a listing, by name.
pub fn kernels(listing: &str) -> BTreeMap<String, Kernel> {
    let mut all = BTreeMap::new();
    let mut current: Option<(String, Kernel)> = None;
    for line in listing.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix(".text.").and_then(|rest| rest.strip_suffix(':')) {
            all.extend(current.take());
            current = Some((name.to_owned(), Kernel { insts: Vec::new(), labels: BTreeMap::new() }));
        } else if let Some((_, kernel)) = &mut current {
            if line.starts_with(".section") || line.starts_with("//-----") {
                all.extend(current.take());
            } else if let Some(label) = line.strip_suffix(':').filter(|l| l.starts_with(".L")) {
                kernel.labels.insert(label.to_owned(), kernel.insts.len());
            } else {
                kernel.insts.extend(inst(line));
            }
        }
    }
    all.extend(current);
    all
}

/// Parses a line such as `/*0120*/  @!P0 BRA `(.L_x_8) ;`.
fn inst(line: &str) -> Option<Inst> {
    let (_, text) = line.strip_prefix("/*")?.split_once("*/")?;
    let text = text.split(';').next()?.trim();
    let (predicated, text) = match text.strip_prefix('@') {
        Some(rest) => (true, rest.split_once(' ')?.1.trim()),
        None => (false, text),
    };
    let (opcode, operands) = text.split_once(' ').unwrap_or((text, ""));
    (!opcode.is_empty()).then(|| Inst { opcode: opcode.into(), predicated, operands: operands.trim().into() })
}

impl Inst {
    /// Whether the opcode begins with these components.
    pub fn is(&self, prefix: &str) -> bool {
        self.opcode.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    fn target(&self) -> Option<&str> {
        self.operands.split_once("`(").and_then(|(_, rest)| rest.split_once(')')).map(|(label, _)| label)
    }
}

impl Kernel {
    /// The number of instructions whose opcode has this prefix.
    pub fn count(&self, prefix: &str) -> usize {
        self.insts.iter().filter(|i| i.is(prefix)).count()
    }

    /// The first instructions of the basic blocks, in order.
    fn leaders(&self) -> Vec<usize> {
        let mut leaders: BTreeSet<usize> = self.labels.values().copied().collect();
        leaders.insert(0);
        let ends = self.insts.iter().enumerate().filter(|(_, i)| i.is("BRA") || i.is("EXIT"));
        leaders.extend(ends.map(|(at, _)| at + 1));
        leaders.into_iter().filter(|at| *at < self.insts.len()).collect()
    }

    /// The loop that has the block with the most `LDGMC`, or `None` if no loop has any.
    ///
    /// A loop is a branch back to a label, with all blocks from which its end is reached without
    /// its head. Its path goes from the head through the block with most `LDGMC` and back to the
    /// head, with the fewest instructions.
    pub fn hot_loop(&self) -> Option<HotLoop> {
        let leaders = self.leaders();
        let range = |b: usize| self.range(&leaders, b);
        let next = |b: usize| self.next(&leaders, b);
        let loads = |b: usize| self.insts[range(b)].iter().filter(|i| i.is("LDGMC")).count();

        let mut best: Option<(usize, usize, Vec<usize>)> = None;
        for tail in 0..leaders.len() {
            for head in next(tail).into_iter().filter(|head| *head <= tail) {
                let inside = self.inside(head, tail, leaders.len(), &next);
                let Some(hot) = inside.iter().copied().max_by_key(|b| (loads(*b), usize::MAX - b)) else {
                    continue;
                };
                let path = |from, to| shortest(from, to, &inside, &next, &|b| range(b).len());
                let (Some(mut there), Some(back)) = (path(head, hot), path(hot, tail)) else { continue };
                there.extend(&back[1..]);
                let length: usize = there.iter().map(|b| range(*b).len()).sum();
                let found = (loads(hot), length, there);
                let better =
                    |old: &(usize, usize, _)| found.0 > old.0 || (found.0 == old.0 && found.1 < old.1);
                if found.0 > 0 && best.as_ref().is_none_or(better) {
                    best = Some(found);
                }
            }
        }
        let (_, _, path) = best?;
        Some(HotLoop { insts: path.into_iter().flat_map(|b| self.insts[range(b)].to_vec()).collect() })
    }

    /// The innermost loops that contain an instruction with this prefix, in the order of the code.
    pub fn loops_with(&self, prefix: &str) -> Vec<HotLoop> {
        let leaders = self.leaders();
        let next = |b: usize| self.next(&leaders, b);
        let has = |b: &usize| self.insts[self.range(&leaders, *b)].iter().any(|i| i.is(prefix));
        let mut found: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for tail in 0..leaders.len() {
            for head in next(tail).into_iter().filter(|head| dominates(*head, tail, &next)) {
                found.entry(head).or_default().extend(self.inside(head, tail, leaders.len(), &next));
            }
        }
        found.retain(|_, inside| inside.iter().any(has));
        let outer = |a: &BTreeSet<usize>| found.values().any(|b| b.is_subset(a) && b.len() < a.len());
        let inner = found.values().filter(|a| !outer(a));
        let insts = |b: &usize| self.insts[self.range(&leaders, *b)].to_vec();
        inner.map(|a| HotLoop { insts: a.iter().flat_map(insts).collect() }).collect()
    }

    /// The instructions of a block.
    fn range(&self, leaders: &[usize], b: usize) -> Range<usize> {
        leaders[b]..leaders.get(b + 1).copied().unwrap_or(self.insts.len())
    }

    /// The blocks that can follow a block.
    fn next(&self, leaders: &[usize], b: usize) -> Vec<usize> {
        let Some(last) = self.range(leaders, b).last() else { return Vec::new() };
        let inst = &self.insts[last];
        let mut next = Vec::new();
        if inst.is("BRA") {
            let to = inst.target().and_then(|t| self.labels.get(t));
            let block_of = |at: usize| leaders.partition_point(|l| *l <= at) - 1;
            next.extend(to.filter(|at| **at < self.insts.len()).map(|at| block_of(*at)));
        }
        // `BRA P1, target` has a predicate among its operands.
        let conditional = inst.predicated || inst.is("BRA") && !inst.operands.starts_with('`');
        let falls = !(inst.is("BRA") || inst.is("EXIT")) || conditional;
        next.extend((falls && b + 1 < leaders.len()).then_some(b + 1));
        next
    }

    /// The blocks of the loop that a branch from `tail` back to `head` forms.
    fn inside(
        &self,
        head: usize,
        tail: usize,
        n: usize,
        next: &dyn Fn(usize) -> Vec<usize>,
    ) -> BTreeSet<usize> {
        let mut before = vec![Vec::new(); n];
        (0..n).for_each(|b| next(b).into_iter().for_each(|to| before[to].push(b)));
        let mut inside = BTreeSet::from([head, tail]);
        let mut todo = vec![tail];
        while let Some(b) = todo.pop().filter(|_| tail != head) {
            todo.extend(before[b].iter().copied().filter(|p| inside.insert(*p)));
        }
        inside
    }
}

/// Whether every path from the first block to `tail` goes through `head`.
fn dominates(head: usize, tail: usize, next: &dyn Fn(usize) -> Vec<usize>) -> bool {
    let mut seen = BTreeSet::from([head, 0]);
    let mut todo = vec![0];
    while let Some(b) = todo.pop().filter(|_| head != 0) {
        todo.extend(next(b).into_iter().filter(|to| seen.insert(*to)));
    }
    head == 0 || head == tail || !seen.contains(&tail)
}

/// The path of least weight within a set of blocks, including both ends.
fn shortest(
    from: usize,
    to: usize,
    within: &BTreeSet<usize>,
    next: &dyn Fn(usize) -> Vec<usize>,
    weight: &dyn Fn(usize) -> usize,
) -> Option<Vec<usize>> {
    let mut found: BTreeMap<usize, (usize, Vec<usize>)> =
        BTreeMap::from([(from, (weight(from), vec![from]))]);
    let mut todo = VecDeque::from([from]);
    while let Some(b) = todo.pop_front() {
        let (cost, path) = found[&b].clone();
        for n in next(b).into_iter().filter(|n| within.contains(n)) {
            let cost = cost + weight(n);
            if found.get(&n).is_none_or(|(old, _)| cost < *old) {
                found.insert(n, (cost, [&path[..], &[n]].concat()));
                todo.push_back(n);
            }
        }
    }
    found.remove(&to).map(|(_, path)| path)
}

impl HotLoop {
    /// The number of instructions whose opcode has this prefix.
    pub fn count(&self, prefix: &str) -> usize {
        self.insts.iter().filter(|i| i.is(prefix)).count()
    }

    /// The number of `LDGMC` before the first instruction that reads the result of one of them.
    pub fn loads_in_flight(&self) -> usize {
        let mut loaded: Vec<u32> = Vec::new();
        let mut n = 0;
        for inst in &self.insts {
            let registers = registers(&inst.operands);
            if inst.is("LDGMC") {
                n += 1;
                // The address follows the result. A vector of 16 bytes has four registers.
                loaded.extend(registers.first().map(|r| (*r..r + 4).collect::<Vec<_>>()).unwrap_or_default());
                continue;
            }
            // These are the registers that a store reads, or that another instruction names after
            // its result.
            let reads = if inst.is("ST") || inst.opcode.starts_with("ST") {
                &registers[..]
            } else {
                registers.get(1..).unwrap_or(&[])
            };
            if reads.iter().any(|r| loaded.contains(r)) {
                return n;
            }
        }
        n
    }
}

/// The numbers of the registers in the operands, in order.
pub fn registers(operands: &str) -> Vec<u32> {
    let words = operands.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(|w| w.strip_prefix('R')?.parse().ok()).collect()
}

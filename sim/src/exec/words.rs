//! Answers the race detector's questions about running grids.

use super::run::Run;
use crate::check::programs::{GridWords, InstructionWords, Programs};
use crate::memory::Memory;

impl Programs for Run {
    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn grid(&self, grid: u32) -> Option<GridWords<'_>> {
        let g = self.grids.get(grid as usize)?;
        let before = self.launched.get(g.pe).copied().unwrap_or(0);
        let here = self
            .grids
            .iter()
            .take(grid as usize + 1)
            .filter(|other| other.pe == g.pe && !other.module.of_host);
        let launch = before + here.count();
        Some(GridWords {
            kernel: &g.kernel().name,
            block: g.block,
            launch,
            early: g.early.is_some(),
            names: &g.names,
        })
    }

    fn instruction(&self, grid: u32, pc: u32) -> Option<InstructionWords<'_>> {
        let code = &*self.grids.get(grid as usize)?.module;
        let inst = code.insts.get(pc as usize)?;
        let mnemonic = code.mnemonics.get(inst.mnemonic as usize).map_or("", String::as_str);
        Some(InstructionWords {
            line: inst.line,
            text: code.line(inst.line),
            mnemonic,
            source: code.source(inst),
        })
    }

    fn shared_variable(&self, grid: u32, offset: u64) -> Option<(&str, u64)> {
        let g = self.grids.get(grid as usize)?;
        let below = g.code().shared.iter().filter(|(_, start)| *start <= offset);
        let (variable, start) = below.max_by_key(|(_, start)| *start)?;
        Some((&g.module.variables.get(*variable)?.name, *start))
    }
}

//! The progress of pending operations as the schedule advances.

use super::{Failure, World};
use crate::error::{CodeLocation, SimError};
use crate::exec::run::Run;
use crate::model::{CtaSlot, WarpSlot};
use crate::names::Named;

impl Run {
    /// Completes some pending operations after a round of the schedule.
    pub(in crate::exec) fn land_some(&mut self) -> Result<(), SimError> {
        if self.asynchronous.is_idle() {
            return Ok(());
        }
        let mut world = World { memory: &mut self.memory, check: self.check.as_deref_mut() };
        self.asynchronous.tick(&mut world).map_err(|f| self.failure(*f))
    }

    /// Completes a pending operation if no warp can continue, or if nothing has changed for long.
    /// Returns `false` if nothing is pending.
    pub(in crate::exec) fn hasten(&mut self) -> Result<bool, SimError> {
        if self.schedule.wake() || self.memory.land_every() {
            return Ok(true);
        }
        let mut world = World { memory: &mut self.memory, check: self.check.as_deref_mut() };
        match self.asynchronous.hasten(&mut world) {
            Ok(false) => Ok(self.remote.wire.hasten(&mut self.memory)),
            Ok(true) => Ok(true),
            Err(f) => Err(self.failure(*f)),
        }
    }

    /// Completes all pending operations after the end of all kernels.
    pub(in crate::exec) fn finish_operations(&mut self) -> Result<(), SimError> {
        let mut world = World { memory: &mut self.memory, check: self.check.as_deref_mut() };
        self.asynchronous.finish(&mut world).map_err(|f| self.failure(*f))?;
        self.remote.wire.finish(&mut self.memory);
        Ok(())
    }

    /// Completes the pending operations of a grid at its end, since the next work of the stream
    /// sees all of its results.
    pub(in crate::exec) fn end_operations(&mut self, grid: usize) -> Result<(), SimError> {
        let mut world = World { memory: &mut self.memory, check: self.check.as_deref_mut() };
        self.asynchronous.end_grid(&mut world, grid).map_err(|f| self.failure(*f))
    }

    /// Handles the end of a warp.
    pub(in crate::exec) fn end_warp(&mut self, w: WarpSlot) {
        let mut world = World { memory: &mut self.memory, check: self.check.as_deref_mut() };
        self.asynchronous.end_warp(&mut world, w);
    }

    /// Handles the end of a CTA, and with it that of its shared memory.
    pub(in crate::exec) fn end_shared(&mut self, c: CtaSlot) -> Result<(), SimError> {
        let buffer = self.memory.shared_buffer(c);
        self.memory.leave_stores(buffer);
        self.asynchronous.end_cta(&self.memory, buffer).map_err(|f| self.failure(*f))?;
        self.memory.share(c, 0);
        Ok(())
    }

    /// Makes the error of an operation that failed at its completion.
    fn failure(&self, f: Failure) -> SimError {
        let Failure { origin, fault } = f;
        let grid = &self.grids[origin.grid];
        let inst = &grid.module.insts[origin.pc as usize];
        let place = CodeLocation {
            pe: origin.pe,
            cta: origin.ctaid,
            thread: Some(origin.tid),
            role: Named::of(&grid.names, origin.tid[0]).cloned(),
            kernel: grid.kernel().name.clone(),
            ptx_line: inst.line,
            ptx_text: grid.module.line(inst.line).to_string(),
            source: grid.module.source(inst),
        };
        let mut error = SimError::new(fault.code, fault.message, fault.help);
        error.at = Some(Box::new(place));
        error
    }
}

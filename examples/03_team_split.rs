//! Teams: every other PE, rows and columns of a grid, and a list. Collectives run within each.

use std::error::Error;
use std::process::ExitCode;
use weft::runtime::{Reduce, Team, World, on_every_pe};

fn main() -> ExitCode {
    on_every_pe(split)
}

pub(crate) fn split(world: &World) -> Result<(), Box<dyn Error>> {
    let all = world.team();
    let n = world.n_pes();

    // PEs 0, 2, 4, ...: `None` in the others.
    let even = all.split_strided(0, 2, n.div_ceil(2))?;
    // A grid with two columns: this PE's row and its column.
    let (row, column) = all.split_2d(2)?;
    // Any PEs in any order; only those listed need to call.
    let backwards = all.list(&(0..n).rev().collect::<Vec<_>>())?;

    for (name, team) in
        [("even", &even), ("row", &Some(row)), ("column", &Some(column)), ("backwards", &backwards)]
    {
        // Memory belongs to the world: every PE allocates, including those outside the team.
        let (mine, sum) = (world.tensor::<u64>(1)?, world.zeros::<u64>(1)?);
        mine.copy_from(&[1 << world.my_pe()], world.stream())?;
        if let Some(team) = team {
            team.reduce(Reduce::Sum, &sum, &mine, world.stream())?;
            check(world, name, team, sum.to_vec(world.stream())?[0])?;
        }
        world.barrier()?;
    }
    Ok(())
}

/// Each member contributes one bit, so the sum says which PEs took part.
fn check(world: &World, name: &str, team: &Team, bits: u64) -> Result<(), Box<dyn Error>> {
    let want: u64 = team.members().iter().map(|pe| 1 << pe).sum();
    if bits != want {
        return Err(format!("{name}: {bits:#b}, expected {want:#b}").into());
    }
    println!(
        "PE {}: rank {} of {} in {name}, PEs {:?}",
        world.my_pe(),
        team.my_pe(),
        team.n_pes(),
        team.members()
    );
    Ok(())
}

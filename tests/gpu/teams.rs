//! Tests of teams: predefined, strided, in two dimensions, and by list.

use crate::check::{Case, Checked};
use crate::{ensure, same};
use weft::runtime::{Reduce, SymmetricTensor, Team, World, error};

pub const CASES: &[Case] = &[
    Case::new("teams::predefined", predefined),
    Case::new("teams::split_strided", split_strided),
    Case::new("teams::split_2d", split_2d),
    Case::new("teams::by_list", by_list),
    Case::new("teams::parts_of_a_listed_one", parts).pes(2),
    Case::new("teams::tables_follow_members", tables).pes(2),
    Case::new("teams::many_are_made_and_ended", many),
];

/// Checks that a collective of the team combines the data of its members.
fn works(world: &World, team: &Team) -> Checked {
    let x: SymmetricTensor<i64> = world.tensor(3)?;
    let y: SymmetricTensor<i64> = world.tensor(3)?;
    x.copy_from(&[i64::from(world.my_pe()) + 1; 3], world.stream())?;
    team.barrier(world.stream())?;
    team.reduce(Reduce::Sum, &y, &x, world.stream())?;
    let want: i64 = team.members().iter().map(|pe| i64::from(*pe) + 1).sum();
    same!(y.to_vec(world.stream())?, vec![want; 3], "sum over {team:?}");
    Ok(())
}

fn predefined(world: &World) -> Checked {
    let team = world.team();
    same!((team.my_pe(), team.n_pes()), (world.my_pe(), world.n_pes()), "world");
    works(world, &team)?;
    let (node, shared) = (world.team_node()?, world.team_shared()?);
    same!(node.members(), team.members(), "one node");
    same!(shared.members(), team.members(), "all reach each other");
    works(world, &node)?;
    let place = world.team_same_place()?;
    same!(place.members(), [world.my_pe()], "alone in its place");
    same!(team.world_pe(world.n_pes()).unwrap_err().code, error::NOT_IN_TEAM, "no such rank");
    Ok(())
}

fn split_strided(world: &World) -> Checked {
    let (all, n) = (world.team(), world.n_pes());
    for (start, stride) in [(0, 1), (0, 2), (n - 1, 1)] {
        let size = (n - start).div_ceil(stride);
        let team = all.split_strided(start, stride, size)?;
        let inside = world.my_pe() >= start && (world.my_pe() - start).is_multiple_of(stride);
        same!(team.is_some(), inside, "PEs {start}, {stride} apart");
        // All PEs allocate together, including those that are not in the team.
        let x: SymmetricTensor<i64> = world.zeros(1)?;
        let y: SymmetricTensor<i64> = world.zeros(1)?;
        if let Some(team) = &team {
            same!(team.world_pe(team.my_pe())?, world.my_pe(), "own rank");
            same!(team.translate(0, &all)?, Some(start), "rank 0");
            x.copy_from(&[i64::from(world.my_pe())], world.stream())?;
            team.reduce(Reduce::Max, &y, &x, world.stream())?;
            let last = i64::from(start + (size - 1) * stride);
            same!(y.to_vec(world.stream())?, vec![last], "greatest of PEs {start}, {stride} apart");
        }
        world.barrier()?;
    }
    same!(all.split_strided(0, 1, n + 1).unwrap_err().code, error::NOT_IN_TEAM, "too many PEs");
    same!(all.split_strided(0, u32::MAX, 3).unwrap_err().code, error::NOT_IN_TEAM, "too far apart");
    Ok(())
}

fn split_2d(world: &World) -> Checked {
    for x_range in [1, 2, world.n_pes()] {
        let (x, y) = world.team().split_2d(x_range)?;
        let (width, me) = (x_range.min(world.n_pes()), world.my_pe());
        ensure!(x.members().iter().all(|pe| pe / width == me / width), "row {x:?} of PE {me}");
        ensure!(y.members().iter().all(|pe| pe % width == me % width), "column {y:?} of PE {me}");
        same!(x.my_pe(), me % width, "rank in the row");
        same!(y.my_pe(), me / width, "rank in the column");
        works(world, &x)?;
        works(world, &y)?;
        world.barrier()?;
    }
    same!(world.team().split_2d(0).unwrap_err().code, error::NOT_IN_TEAM, "rows of 0");
    Ok(())
}

fn by_list(world: &World) -> Checked {
    let n = world.n_pes();
    let backwards: Vec<u32> = (0..n).rev().collect();
    let team = world.team().list(&backwards)?.ok_or("all are listed")?;
    same!(team.my_pe(), n - 1 - world.my_pe(), "rank in the reversed team");
    works(world, &team)?;
    drop(team);
    let some: Vec<u32> = (0..n).filter(|pe| pe % 2 == 0 || *pe == n - 1).collect();
    let team = world.team().list(&some)?;
    same!(team.is_some(), some.contains(&world.my_pe()), "PEs {some:?}");
    drop(team);
    same!(world.team().list(&[0, 0]).unwrap_err().code, error::NOT_IN_TEAM, "PE 0 twice");
    same!(world.team().list(&[n]).unwrap_err().code, error::NOT_IN_TEAM, "PE {n}");
    world.barrier()?;
    Ok(())
}

fn parts(world: &World) -> Checked {
    let (n, me) = (world.n_pes(), world.my_pe());
    let backwards: Vec<u32> = (0..n).rev().collect();
    let team = world.team().list(&backwards)?.ok_or("all are listed")?;
    let rest = team.split_strided(1, 1, n - 1)?;
    same!(rest.is_some(), me != n - 1, "all but the first rank");
    if let Some(rest) = &rest {
        same!(rest.members(), &backwards[1..], "its members");
    }
    drop(rest);
    let (row, column) = team.split_2d(2)?;
    same!(row.my_pe(), team.my_pe() % 2, "rank in the row");
    same!(column.my_pe(), team.my_pe() / 2, "rank in the column");
    works(world, &row)?;
    works(world, &column)
}

/// Checks that a team which is created after another has ended can get its handle, but not its
/// table of addresses.
fn tables(world: &World) -> Checked {
    let x = world.buffer(64)?;
    for pes in [[0, 1], [1, 0]] {
        if let Some(team) = world.team().list(&pes)? {
            let want = pes.iter().map(|pe| x.peer_address(*pe)).collect::<Result<Vec<_>, _>>()?;
            same!(x.peer_table(&team, 0)?.to_vec(world.stream())?, want, "addresses of PEs {pes:?}");
        }
        world.barrier()?;
    }
    Ok(())
}

fn many(world: &World) -> Checked {
    // NVSHMEM takes half a second for each, most of it in nvshmem_team_destroy.
    for _ in 0..8 {
        let team = world.team().split_strided(0, 1, world.n_pes())?.ok_or("all are in it")?;
        same!(team.n_pes(), world.n_pes(), "members");
    }
    Ok(())
}

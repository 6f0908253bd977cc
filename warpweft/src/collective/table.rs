//! The table of algorithms.

use super::cost::{chunks, last_chunk, others, part, pes, pushed, rounds, skew, slots};
use super::sums::{by_switch, quantised, ranked, rotated as from_itself};
use super::{Algorithm, Collective, Cost, Plan, Request};

/// The bytes of the whole operand.
fn whole(r: &Request) -> u64 {
    r.count * r.dtype.bytes() as u64
}

/// The bytes of a PE's share of the operand.
fn share(r: &Request) -> u64 {
    r.count.div_ceil(u64::from(r.n_pes.max(1))) * r.dtype.bytes() as u64
}

/// The bytes of a share if all but one PE have a share.
fn share_of_others(r: &Request) -> u64 {
    r.count.div_ceil(u64::from(r.n_pes.max(2) - 1)) * r.dtype.bytes() as u64
}

/// The elements of a PE's share, each of which is sent as one byte.
fn runs(r: &Request) -> u64 {
    r.count.div_ceil(u64::from(r.n_pes.max(1)))
}

/// The number of elements that are sent in a step of 16 bytes.
const RUN: u32 = 16;

/// Bytes of scales for each byte of quantised data: each block has two scales.
fn scales(p: &Plan) -> f64 {
    2.0 / f64::from(RUN * p.unroll.max(1))
}

/// The number of CTAs that have slots for packets.
pub(super) const LL_CTAS: u32 = 64;
/// The number of slots of a CTA for the packets of each PE.
pub(super) const LL_SLOTS: u32 = 1024;
/// The number of vectors of a CTA, over all PEs of a power of two, for which there are places that
/// mark data by not being empty.
const LAMPORT_SLOTS: u32 = 8192;

/// The number of these places for each PE of a team.
pub(super) fn room(n_pes: u32) -> u32 {
    (LAMPORT_SLOTS / n_pes.max(2).next_power_of_two()).max(1)
}

/// Bytes of data in a packet.
const PACKET: u64 = 8;
/// Bytes of an access, and of a packet with its flags.
const VECTOR: u64 = 16;

/// The number of steps of a CTA, of 16 bytes for each PE, for which there is staging memory when a
/// launch has the most CTAs.
pub(super) const STAGE: u32 = 1024;
/// The bytes of a chunk that NVSHMEM's operations send.
pub(super) const INBOX: u32 = 16 << 10;
/// The number of threads that share a chunk.
const NET_THREADS: u32 = 512;
/// The greatest number of steps of a CTA that keeps them in registers.
const MAX_STEPS: u32 = 8192;
/// No limit other than that of the handle.
const MAX_CTAS: u32 = u32::MAX;

/// Algorithms that send packets.
const LL: Algorithm = Algorithm {
    collective: Collective::AllReduce,
    name: "ll",
    part: "",
    out_of_place: Some("ll"),
    in_place: Some("ll_in_place"),
    switch: false,
    net: false,
    engine: false,
    work: whole,
    unit: PACKET,
    threads: 512,
    max_ctas: LL_CTAS,
    unroll: 4,
    max_steps: |_| LL_SLOTS,
    lamport: false,
    run: 1,
    sums: ranked,
    staged: false,
    cost: packets,
    about: "",
};

/// Algorithms that send packets through the switch's multicast.
const LL_SWITCH: Algorithm = Algorithm { name: "ll_switch", switch: true, cost: packets_switch, ..LL };

/// Algorithms that use loads and stores between barriers.
const BARRIERS: Algorithm = Algorithm {
    name: "push",
    out_of_place: Some("push"),
    in_place: Some("push_in_place"),
    unit: VECTOR,
    threads: 512,
    max_ctas: MAX_CTAS,
    max_steps: |_| MAX_STEPS,
    sums: by_switch,
    cost: Cost::of_nothing,
    ..LL
};

/// Algorithms that store into staging memory.
const STAGED: Algorithm =
    Algorithm { work: share, threads: 256, unroll: 4, sums: ranked, staged: true, ..BARRIERS };

/// Algorithms that store rows into staging memory, each row for one PE.
const EXCHANGED: Algorithm = Algorithm {
    name: "staged",
    out_of_place: Some("staged"),
    in_place: Some("staged_in_place"),
    work: whole,
    // All rows are read from staging memory, including the PE's own.
    cost: |r, p| Cost { local: pes(r) * chunks(r, p), ..staged(r, p, 0.0) },
    ..STAGED
};

/// Algorithms in which the copy engine copies to each other PE. The plan is that of two of their
/// kernels, which have one warp.
const ENGINE: Algorithm = Algorithm {
    name: "engine",
    part: "engine",
    in_place: None,
    engine: true,
    threads: 32,
    unroll: 1,
    max_ctas: 1,
    max_steps: |_| 32,
    cost: |r, _| Cost { waits: 2.0, engine: others(r) * part(r), ..Cost::default() },
    ..BARRIERS
};

/// Algorithms that use NVSHMEM's operations.
const NET: Algorithm = Algorithm {
    name: "net",
    out_of_place: Some("net"),
    in_place: None,
    net: true,
    unit: INBOX as u64 / NET_THREADS as u64,
    threads: NET_THREADS,
    unroll: 1,
    max_steps: |_| MAX_STEPS,
    cost: |r, p| net(r, p, 1.0, others(r) * part(r)),
    ..LL
};

/// The cost of packets to each other PE, with one flight for each round.
fn packets(r: &Request, p: &Plan) -> Cost {
    Cost { packets: overlapped(r, p), packed: others(r) * slots(r, p) * VECTOR as f64, ..Cost::default() }
}

/// The cost of data that is its own flag. A byte is read, written and emptied in a GPU's own memory
/// about four times in all. Both factors come from 2 H100s (docs/performance.md).
fn lamport(r: &Request, p: &Plan) -> Cost {
    let bytes = slots(r, p) * VECTOR as f64;
    Cost { packets: 0.7, local: 4.0 * bytes, ..pushed(r, others(r) * bytes) }
}

/// The same through the switch: every PE receives the data of every PE.
fn lamport_switch(r: &Request, p: &Plan) -> Cost {
    let bytes = slots(r, p) * VECTOR as f64;
    Cost { packets: 0.7, local: 4.0 * bytes, switch: pes(r) * bytes, ..Cost::default() }
}

/// The cost of packets through the switch: every PE receives those of every PE.
fn packets_switch(r: &Request, p: &Plan) -> Cost {
    Cost { packets: overlapped(r, p), switch: pes(r) * slots(r, p) * VECTOR as f64, ..Cost::default() }
}

/// The cost of packets of each row to its PE, and of its sums to all PEs.
fn packets_twice(r: &Request, p: &Plan) -> Cost {
    let once = packets(r, p);
    Cost { packets: 2.0 * once.packets, packed: 2.0 * once.packed, ..once }
}

fn packets_twice_switch(r: &Request, p: &Plan) -> Cost {
    let (rows, sums) = (packets(r, p), packets_switch(r, p));
    Cost { packets: 2.0 * rows.packets, switch: sums.switch, ..rows }
}

/// The cost between two barriers: bytes through the switch if the team has one, otherwise those of
/// accesses to peers.
fn between(r: &Request, switch: f64, peers: Cost) -> Cost {
    let moved = if r.multicast { Cost { switch, ..Cost::default() } } else { peers };
    // Loads take an additional round trip.
    let flights = if moved.pull > 0.0 { 0.4 } else { 0.0 };
    Cost { waits: 2.0, flights, ..moved }
}

/// The flights of packets. Half of those after the first are hidden, because CTAs are not in step
/// (docs/performance.md, `ll` on 2 H200s).
fn overlapped(r: &Request, p: &Plan) -> f64 {
    1.0 + 0.5 * (rounds(r, p) - 1.0)
}

/// The cost of rows pushed into staging memory, and of `sums` bytes of sums. A further round takes
/// slightly more than two flights, or as long as its bytes take (docs/performance.md, `push_direct`
/// on 2 H200s).
fn staged(r: &Request, p: &Plan, sums: f64) -> Cost {
    Cost {
        flights: 2.0 + skew(p),
        hidden: 2.1 * (rounds(r, p) - 1.0),
        ..pushed(r, others(r) * (chunks(r, p) + sums))
    }
}

/// The cost of [`staged`] to one PE at a time. The additional time of the turns comes from 2 H200s,
/// each of which took seven turns to the other (docs/performance.md).
fn rotated(r: &Request, p: &Plan) -> Cost {
    let turns = (others(r) - 1.0).max(0.0);
    let bytes = others(r) * (chunks(r, p) + part(r) / pes(r));
    Cost {
        flights: 2.0 + skew(p) + 1.4 * turns,
        hidden: (2.1 + 1.8 * turns) * rounds(r, p) - 2.1,
        neighbour: bytes,
        ..Cost::default()
    }
}

/// The cost of bytes sent by puts, with `signals` consecutive signals for each chunk.
fn net(r: &Request, p: &Plan, signals: f64, bytes: f64) -> Cost {
    Cost { net_flights: signals * rounds(r, p), net: bytes, ..Cost::default() }
}

impl Cost {
    /// The cost with `by` times as many stored bytes.
    fn times(self, by: f64) -> Cost {
        Cost { push: self.push * by, neighbour: self.neighbour * by, ..self }
    }

    /// The cost of a template, which the rows of the table replace.
    fn of_nothing(_: &Request, _: &Plan) -> Cost {
        Cost::default()
    }
}

/// Every algorithm of the library. Those of one collective are in the order of the sizes that they
/// suit, smallest first.
pub static ALGORITHMS: [Algorithm; 39] = [
    Algorithm {
        part: "allreduce",
        in_place: Some("net_in_place"),
        work: share,
        cost: |r, p| net(r, p, 2.0, 2.0 * others(r) / pes(r) * part(r)),
        about: "puts send chunks of each part to its PE, which puts the sums to all PEs",
        ..NET
    },
    Algorithm {
        part: "allreduce",
        about: "as ll, but each packet is sent once and the switch multicasts it",
        ..LL_SWITCH
    },
    Algorithm {
        part: "allreduce",
        about: "every PE sends all its data to all PEs in packets that carry their own flag, and reduces all: one flight",
        ..LL
    },
    Algorithm {
        name: "lamport_switch",
        switch: true,
        cost: lamport_switch,
        about: "as lamport, but each vector is sent once and the switch multicasts it",
        ..LAMPORT
    },
    LAMPORT,
    Algorithm {
        name: "lamport_two_shot",
        out_of_place: Some("lamport_two_shot"),
        in_place: Some("lamport_two_shot_in_place"),
        work: share,
        max_steps: |r| room(r.n_pes) / 2,
        cost: |r, p| {
            let once = lamport(r, p);
            Cost { packets: 2.0 * once.packets, local: 2.0 * once.local, ..once.times(2.0) }
        },
        about: "as ll_two_shot, but without flags",
        ..LAMPORT
    },
    Algorithm {
        name: "ll_two_shot_switch",
        switch: true,
        cost: packets_twice_switch,
        about: "as ll_two_shot, but the switch multicasts the sums",
        ..LL_TWO_SHOT
    },
    LL_TWO_SHOT,
    Algorithm {
        name: "one_shot",
        part: "allreduce",
        out_of_place: Some("one_shot"),
        in_place: None,
        cost: |r, _| between(r, pes(r) * part(r), Cost { pull: others(r) * part(r), ..Cost::default() }),
        about: "a barrier, every PE reduces all elements itself, a barrier",
        ..BARRIERS
    },
    Algorithm {
        name: "push_direct",
        part: "allreduce",
        out_of_place: Some("push_direct"),
        in_place: Some("push_direct_in_place"),
        cost: |r, p| staged(r, p, part(r) / pes(r)),
        about: "as push, but sums are written directly into the results",
        ..STAGED
    },
    Algorithm {
        part: "allreduce",
        cost: |r, p| Cost { local: part(r), ..staged(r, p, chunks(r, p)) },
        about: "parts and sums are pushed into staging memory, with a flag for each CTA: two flights, any memory",
        ..STAGED
    },
    Algorithm {
        name: "rotate",
        part: "rotate",
        out_of_place: Some("rotate"),
        in_place: Some("rotate_in_place"),
        sums: from_itself,
        cost: rotated,
        about: "as push_direct, but every PE sends to one PE after the other, and at any time all send to different PEs",
        ..STAGED
    },
    Algorithm {
        name: "quantised",
        part: "quantised",
        out_of_place: Some("quantised"),
        in_place: Some("quantised_in_place"),
        work: runs,
        run: RUN,
        sums: quantised,
        cost: |r, p| Cost { local: part(r), ..staged(r, p, chunks(r, p)).times(1.0 + scales(p)) },
        about: "as push, but in 8 bits with a scale for each block: half the bytes or less, not exact",
        ..STAGED
    },
    Algorithm {
        name: "two_shot",
        part: "allreduce",
        out_of_place: Some("two_shot"),
        in_place: Some("two_shot_in_place"),
        work: share,
        cost: |r, _| {
            let each = others(r) / pes(r) * part(r);
            between(r, part(r) + part(r) / pes(r), Cost { pull: each, ..pushed(r, each) })
        },
        about: "a barrier, every PE reduces its part and writes it to all PEs, a barrier",
        ..BARRIERS
    },
    Algorithm {
        collective: Collective::AllGather,
        part: "all_gather",
        about: "puts send chunks to all PEs",
        ..NET
    },
    Algorithm {
        collective: Collective::AllGather,
        part: "all_gather",
        about: "as ll, but the switch multicasts the packets",
        ..LL_SWITCH
    },
    Algorithm {
        collective: Collective::AllGather,
        part: "all_gather",
        about: "packets are sent to all PEs: one flight",
        ..LL
    },
    Algorithm {
        collective: Collective::AllGather,
        part: "all_gather",
        cost: |r, _| Cost { waits: 2.0, ..pushed(r, others(r) * part(r)) },
        about: "a barrier, every PE writes its data to all PEs, a barrier",
        ..BARRIERS
    },
    Algorithm {
        collective: Collective::AllGather,
        name: "push_switch",
        part: "all_gather",
        switch: true,
        // A PE receives its own part, too.
        cost: |r, _| Cost { waits: 2.0, switch: pes(r) * part(r), ..Cost::default() },
        about: "as push, but the switch multicasts the data",
        ..BARRIERS
    },
    Algorithm {
        collective: Collective::AllGather,
        part: "all_gather",
        about: "data is pushed into staging memory, with a flag for each CTA: any memory",
        ..EXCHANGED
    },
    Algorithm {
        collective: Collective::ReduceScatter,
        part: "reduce_scatter",
        about: "puts send chunks of each part to its PE",
        ..NET
    },
    Algorithm {
        collective: Collective::ReduceScatter,
        part: "reduce_scatter",
        about: "packets of each part are sent to its PE, which reduces them: one flight",
        ..LL
    },
    Algorithm {
        collective: Collective::ReduceScatter,
        part: "reduce_scatter",
        about: "as ll, but without flags",
        ..LAMPORT
    },
    Algorithm {
        collective: Collective::ReduceScatter,
        name: "pull",
        part: "reduce_scatter",
        out_of_place: Some("pull"),
        in_place: Some("pull_in_place"),
        cost: |r, _| between(r, pes(r) * part(r), Cost { pull: others(r) * part(r), ..Cost::default() }),
        about: "a barrier, every PE reduces its part of all inputs, a barrier",
        ..BARRIERS
    },
    Algorithm {
        collective: Collective::ReduceScatter,
        part: "reduce_scatter",
        about: "parts are pushed into staging memory, with a flag for each CTA: any memory",
        ..EXCHANGED
    },
    Algorithm {
        collective: Collective::Broadcast,
        part: "broadcast",
        in_place: Some("net_in_place"),
        about: "puts of the root send chunks to all PEs",
        ..NET
    },
    Algorithm {
        collective: Collective::Broadcast,
        part: "broadcast",
        // Only the root sends packets.
        cost: |r, p| Cost { switch: slots(r, p) * VECTOR as f64, ..packets_switch(r, p) },
        about: "as ll, but the switch multicasts the packets",
        ..LL_SWITCH
    },
    Algorithm {
        collective: Collective::Broadcast,
        part: "broadcast",
        // A PE that sends does not receive, and vice versa.
        cost: |r, p| Cost { packets: packets(r, p).packets - 0.4, ..packets(r, p) },
        about: "packets of the root are sent to all PEs: one flight",
        ..LL
    },
    Algorithm {
        collective: Collective::Broadcast,
        part: "broadcast",
        cost: |r, _| between(r, part(r), pushed(r, others(r) * part(r))),
        about: "a barrier, the root writes to all PEs, a barrier",
        ..BARRIERS
    },
    Algorithm {
        collective: Collective::Broadcast,
        name: "scatter_gather",
        part: "broadcast",
        out_of_place: Some("scatter_gather"),
        in_place: Some("scatter_gather_in_place"),
        work: share,
        cost: |r, _| Cost { waits: 3.0, ..pushed(r, 2.0 * others(r) / pes(r) * part(r)) },
        about: "the root writes a part to each PE, which writes it to all PEs; three barriers",
        ..BARRIERS
    },
    Algorithm {
        collective: Collective::Broadcast,
        name: "staged_direct",
        part: "broadcast",
        out_of_place: Some("staged_direct"),
        in_place: Some("staged_direct_in_place"),
        work: share_of_others,
        cost: |r, p| Cost { local: last_chunk(r, p), ..staged(r, p, 0.0) },
        about: "as staged, but shares are written directly into the results",
        ..STAGED
    },
    Algorithm {
        collective: Collective::Broadcast,
        part: "broadcast",
        work: share_of_others,
        about: "a share is pushed into each other PE's staging memory, and from there to all PEs: two flights, any memory",
        ..EXCHANGED
    },
    Algorithm {
        collective: Collective::AllToAll,
        part: "all_to_all",
        about: "puts send chunks to each PE",
        ..NET
    },
    Algorithm {
        collective: Collective::AllToAll,
        part: "all_to_all",
        about: "packets are sent to each PE: one flight",
        ..LL
    },
    Algorithm {
        collective: Collective::AllToAll,
        part: "all_to_all",
        in_place: None,
        cost: |r, _| Cost { waits: 2.0, ..pushed(r, others(r) * part(r)) },
        about: "a barrier, every PE writes each PE its part, a barrier",
        ..BARRIERS
    },
    Algorithm {
        collective: Collective::AllToAll,
        part: "all_to_all",
        about: "parts are pushed into staging memory, with a flag for each CTA: any memory",
        ..EXCHANGED
    },
    Algorithm {
        collective: Collective::AllGather,
        out_of_place: Some("all_gather"),
        in_place: Some("all_gather_in_place"),
        about: "after a barrier, the copy engine copies to all PEs, and threads send the first bytes",
        ..ENGINE
    },
    Algorithm {
        collective: Collective::Broadcast,
        out_of_place: Some("broadcast"),
        in_place: Some("broadcast_in_place"),
        about: "after a barrier, the copy engine copies from the root to all PEs, and threads send the first bytes",
        ..ENGINE
    },
    Algorithm {
        collective: Collective::AllToAll,
        out_of_place: Some("all_to_all"),
        about: "after a barrier, the copy engine copies to each PE, and threads send the first bytes",
        ..ENGINE
    },
];

/// Algorithms with packets in two flights.
const LAMPORT: Algorithm = Algorithm {
    name: "lamport",
    part: "allreduce",
    out_of_place: Some("lamport"),
    in_place: Some("lamport_in_place"),
    unit: VECTOR,
    threads: 1024,
    max_ctas: MAX_CTAS,
    unroll: 8,
    max_steps: |r| room(r.n_pes),
    lamport: true,
    cost: lamport,
    about: "as ll, but without flags: a reserved value marks what has not arrived",
    ..LL
};

const LL_TWO_SHOT: Algorithm = Algorithm {
    name: "ll_two_shot",
    part: "allreduce",
    out_of_place: Some("ll_two_shot"),
    in_place: Some("ll_two_shot_in_place"),
    work: share,
    unroll: 2,
    max_steps: |_| LL_SLOTS / 2,
    cost: packets_twice,
    about: "packets of each part are sent to its PE, which reduces the part and sends it to all PEs: two flights",
    ..LL
};

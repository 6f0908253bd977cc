use super::*;
use weft_abi::ParamInfo;
use weft_abi::{Hidden, Scalar, Space};

fn kernel() -> KernelInfo {
    let tensor = |name: &str, layout: &str, offset| ParamInfo {
        name: name.into(),
        offset,
        size: 8,
        kind: ParamKind::Tensor {
            dtype: Scalar::U64,
            layout: layout.parse().unwrap(),
            space: Space::Symmetric,
            align: 8,
            role: None,
        },
    };
    let wait = |line: u32, role: Option<&str>, on, until: Option<&str>| WaitInfo {
        place: format!("k.weft:{line}"),
        role: role.map(Into::into),
        on,
        until: until.map(Into::into),
    };
    let hidden =
        ParamInfo { name: "w".into(), offset: 32, size: 8, kind: ParamKind::Hidden(Hidden::Watch {}) };
    let scalar = |name: &str, dtype, offset| ParamInfo {
        name: name.into(),
        offset,
        size: 4,
        kind: ParamKind::Scalar { dtype, multiple_of: 0 },
    };
    KernelInfo {
        name: "k".into(),
        block: [64, 1, 1],
        cluster: None,
        grid: None,
        shared: 0,
        planes: false,
        dependent: false,
        roles: Vec::new(),
        waits: vec![
            wait(3, None, Watched::Parameter("a".into()), Some(">=")),
            wait(5, Some("load"), Watched::Stage, None),
            wait(7, None, Watched::Memory, Some("==")),
        ],
        params: vec![
            tensor("a", "(64):(1)", 0),
            // Rows of n elements.
            tensor("b", "(4,%2):(%2,1)", 8),
            scalar("n", Scalar::I32, 16),
            scalar("goal", Scalar::I32, 20),
            scalar("f", Scalar::F32, 28),
            hidden,
        ],
    }
}

/// Records of which none was dropped.
fn all(complete: Vec<WaitRecord>) -> Records {
    Records { complete, dropped: 0, ended: 0 }
}

fn record(wait: u32, cta: u32, launch: u32, address: u64) -> WaitRecord {
    WaitRecord { wait, cta, thread: 2, launch, address, seen: 1, expected: 4, cycles: 99 }
}

/// Tensors at 0x1000 and 0x2000, and numbers.
fn launched(table: &Table) {
    let mut block = [0u8; 40];
    block[..8].copy_from_slice(&0x1000u64.to_le_bytes());
    block[8..16].copy_from_slice(&0x2000u64.to_le_bytes());
    block[16..20].copy_from_slice(&7i32.to_le_bytes());
    block[20..24].copy_from_slice(&(-5i32).to_le_bytes());
    block[28..32].copy_from_slice(&0.5f32.to_le_bytes());
    table.launched([2, 1, 1], &block, &[None, None, Some(7), None, None, None, Some(2)].into());
}

#[test]
fn records_become_lines_with_elements() {
    let table = Table::new(&kernel());
    launched(&table);
    let old = record(0, 0, 1, 0x1000);
    let newer =
        [record(0, 1, 2, 0x1018), record(0, 0, 2, 0x1010), record(1, 0, 2, 0), record(2, 3, 2, 0x2048)];
    let records = [old].into_iter().chain(newer).collect();
    assert_eq!(
        summary(&[(&table, all(records))]),
        [
            "`k`, launch 2, CTA 0, thread 2 waits at k.weft:3 (wait 0) for `a[2]`, which is 1 and must be >= 4; \
             so do 1 other CTAs",
            "`k`, launch 2, CTA 0, thread 2 of role `load` waits at k.weft:5 (wait 1) for a stage of a pipeline, \
             whose phase of parity 4 is not complete",
            "`k`, launch 2, CTA 3, thread 2 waits at k.weft:7 (wait 2) for `b[1, 2]`, which is 1 and must be == 4",
            "the host launched `k` last with grid [2, 1, 1], n = 7, goal = -5, f = 0.5",
        ]
    );
}

#[test]
fn without_records_the_last_launch_is_named() {
    let (first, second) = (Table::new(&kernel()), Table::new(&KernelInfo { name: "q".into(), ..kernel() }));
    assert!(summary(&[(&first, all(vec![]))]).is_empty(), "nothing was launched");
    launched(&first);
    launched(&second);
    launched(&second);
    assert_eq!(
        summary(&[(&first, all(vec![])), (&second, all(vec![]))]),
        [
            "no wait was reported; the last launch was `q`, launch 2 with grid [2, 1, 1], n = 7, goal = -5, f = 0.5"
        ]
    );
}

#[test]
fn a_wait_that_the_description_lacks_is_no_panic() {
    let table = Table::new(&kernel());
    let [line] = &summary(&[(&table, all(vec![record(9, 0, 1, 0x10)]))])[..] else { panic!("one line") };
    assert!(line.contains("wait 9, which is missing in the kernel's description"), "{line}");
    let [line] = &summary(&[(&table, all(vec![record(2, 0, 1, 0x10)]))])[..] else { panic!("one line") };
    assert!(line.contains("memory at 0x10"), "no launch says where tensors are: {line}");
}

#[test]
fn records_that_found_no_room_are_counted() {
    let table = Table::new(&kernel());
    launched(&table);
    let mut ring = vec![0u8; weft_abi::watch::RING_BYTES as usize];
    assert_eq!((records(&ring).complete.len(), records(&ring).dropped), (0, 0));
    ring[DROPPED as usize] = 7;
    let lines = table.lines(&records(&ring));
    assert_eq!(lines[0], "`k`: 7 more waits were reported, but the buffer was full");
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn waits_that_have_ended_are_left_out() {
    let table = Table::new(&kernel());
    let found = Records { dropped: 3, ..all((0..4).map(|cta| record(0, cta, 1, 0x1000)).collect()) };
    assert_eq!(found.count(), 7);
    let rest = found.clone().leave_out(3);
    assert_eq!((rest.complete.len(), rest.dropped, rest.count()), (1, 3, 7));
    assert!(table.lines(&rest)[0].contains("CTA 3"), "the first three are old");
    let rest = found.clone().leave_out(6);
    assert_eq!((rest.complete.len(), rest.dropped, rest.count()), (0, 1, 7));
    assert!(summary(&[(&table, found.leave_out(7))]).is_empty());
}

#[test]
fn an_address_that_is_no_element_has_a_number() {
    let table = Table::new(&kernel());
    launched(&table);
    // Row 4 does not exist.
    let lines = table.lines(&all(vec![record(2, 0, 1, 0x2000 + 8 * 29)]));
    assert!(lines[0].contains("for element 29 of `b`, which is 1"), "{lines:?}");
}

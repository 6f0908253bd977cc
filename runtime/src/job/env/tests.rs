use super::*;

fn place(env: &[(&str, &str)]) -> Result<Option<ProcessRank>> {
    detect(&Vars(&|name| env.iter().find(|e| e.0 == name).map(|e| e.1.to_string())))
}

fn found(env: &[(&str, &str)]) -> ProcessRank {
    place(env).unwrap().unwrap()
}

/// Rank, size, and both on this host.
fn numbers(place: &ProcessRank) -> (Launcher, [u32; 4]) {
    let (rank, size) = (place.local_rank.unwrap(), place.local_size.unwrap());
    (place.launcher, [place.rank, place.size, rank, size])
}

fn refused(env: &[(&str, &str)]) -> String {
    let error = place(env).unwrap_err();
    assert_eq!(error.code, LAUNCHER);
    error.message
}

/// One PE of each launcher, on one host and on two.
const OMPI: &[(&str, &str)] = &[
    ("OMPI_COMM_WORLD_RANK", "5"),
    ("OMPI_COMM_WORLD_SIZE", "8"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ("PMIX_NAMESPACE", "1569521665"),
    ("PMIX_RANK", "5"),
];
const TORCHRUN: &[(&str, &str)] = &[
    ("RANK", "3"),
    ("WORLD_SIZE", "4"),
    ("LOCAL_RANK", "3"),
    ("LOCAL_WORLD_SIZE", "4"),
    ("MASTER_ADDR", "127.0.0.1"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "none"),
    ("TORCHELASTIC_RESTART_COUNT", "0"),
];
const SRUN: &[(&str, &str)] = &[
    ("SLURM_PROCID", "4"),
    ("SLURM_NTASKS", "5"),
    ("SLURM_STEP_NUM_TASKS", "5"),
    ("SLURM_LOCALID", "0"),
    ("SLURM_NODEID", "2"),
    ("SLURM_STEP_TASKS_PER_NODE", "2(x2),1"),
    ("SLURM_STEP_NODELIST", "gpu[07-08],login1"),
    ("SLURM_JOB_ID", "1234"),
    ("SLURM_STEP_ID", "2"),
];
const HYDRA: &[(&str, &str)] =
    &[("PMI_RANK", "1"), ("PMI_SIZE", "3"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "3")];
const EXPLICIT: &[(&str, &str)] = &[
    ("WEFT_RANK", "9"),
    ("WEFT_SIZE", "16"),
    ("WEFT_LOCAL_RANK", "1"),
    ("WEFT_LOCAL_SIZE", "8"),
    ("WEFT_ADDR", "node0:29600"),
];

/// `base` with changes; an empty value unsets.
fn with<'a>(base: &[(&'a str, &'a str)], changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    changes.iter().chain(base).copied().collect()
}

#[test]
fn nothing_set_is_no_place() {
    assert_eq!(place(&[]), Ok(None));
    assert_eq!(place(&[("PATH", "/bin"), ("MASTER_ADDR", "n1"), ("RANK", "")]), Ok(None));
}

#[test]
fn explicit_variables() {
    let place = found(EXPLICIT);
    assert_eq!(numbers(&place), (Launcher::Variables, [9, 16, 1, 8]));
    assert_eq!(place.hub, Hub::Tcp("node0".into(), 29600));
    // On one host the local numbers follow.
    let place = found(&[("WEFT_RANK", "1"), ("WEFT_SIZE", "2"), ("WEFT_ADDR", "@here")]);
    assert_eq!(numbers(&place), (Launcher::Variables, [1, 2, 1, 2]));
    assert_eq!(place.hub, Hub::Local("here".into()));
    let place = found(&[("WEFT_RANK", "1"), ("WEFT_SIZE", "2"), ("WEFT_ADDR", "[::1]:7000")]);
    assert_eq!((place.local_size, place.hub), (Some(2), Hub::Tcp("::1".into(), 7000)));
    let supervised = with(EXPLICIT, &[(super::super::spawn::SUPERVISOR, "p")]);
    assert_eq!(found(&supervised).launcher, Launcher::Weft);
}

#[test]
fn torchrun_on_one_host_and_on_two() {
    let place = found(TORCHRUN);
    assert_eq!(numbers(&place), (Launcher::Torchrun, [3, 4, 3, 4]));
    assert!(matches!(&place.hub, Hub::Local(_)), "{place:?}");
    // Other ports, runs and restarts are other jobs.
    for change in
        [("MASTER_PORT", "29501"), ("TORCHELASTIC_RUN_ID", "x"), ("TORCHELASTIC_RESTART_COUNT", "1")]
    {
        assert_ne!(found(&with(TORCHRUN, &[change])).hub, place.hub);
    }
    let two = with(TORCHRUN, &[("LOCAL_WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "n1")]);
    let Hub::Tcp(host, port) = found(&two).hub else { panic!("TCP between hosts") };
    assert_eq!(host, "n1");
    assert!((16384..32768).contains(&port) && port != 29500);
    // All PEs of the job agree on it.
    let other = with(&two, &[("RANK", "0"), ("LOCAL_RANK", "0")]);
    assert_eq!(found(&other).hub, Hub::Tcp("n1".into(), port));
    assert_eq!(found(&with(&two, &[("WEFT_PORT", "1234")])).hub, Hub::Tcp("n1".into(), 1234));
}

#[test]
fn mpirun_on_two_hosts_needs_an_address() {
    let message = refused(OMPI);
    assert_eq!(message, "the 8 PEs are on several hosts (4 on this one), but the host of PE 0 is not known");
    let place = found(&with(OMPI, &[("MASTER_ADDR", "n1")]));
    assert_eq!(numbers(&place), (Launcher::OpenMpi, [5, 8, 1, 4]));
    assert!(matches!(&place.hub, Hub::Tcp(host, _) if host == "n1"));
    let place = found(&with(OMPI, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "8")]));
    assert!(matches!(place.hub, Hub::Local(_)));
}

#[test]
fn srun() {
    let place = found(SRUN);
    assert_eq!(numbers(&place), (Launcher::Slurm, [4, 5, 0, 1]));
    assert!(matches!(&place.hub, Hub::Tcp(host, _) if host == "gpu07"), "{place:?}");
    let other = with(SRUN, &[("SLURM_PROCID", "0"), ("SLURM_NODEID", "0")]);
    let other = found(&other);
    assert_eq!((other.local_size, other.hub), (Some(2), place.hub));
    let one =
        with(SRUN, &[("SLURM_NODEID", "0"), ("SLURM_STEP_TASKS_PER_NODE", "5"), ("SLURM_LOCALID", "4")]);
    assert!(matches!(found(&one).hub, Hub::Local(_)));
}

#[test]
fn a_shell_within_slurm_is_no_pe() {
    // Shells of salloc and `srun --pty`, batch scripts.
    for change in [
        ("SLURM_PROCID", ""),
        ("SLURM_STEP_ID", ""),
        ("SLURM_STEP_ID", "4294967290"),
        ("SLURM_STEP_ID", "4294967291"),
        ("SLURM_STEP_NUM_TASKS", "1"),
    ] {
        let env: Vec<_> = SRUN.iter().copied().filter(|e| e.0 != change.0).chain([change]).collect();
        assert_eq!(place(&env), Ok(None), "{change:?}");
    }
}

#[test]
fn hydra() {
    let place = found(HYDRA);
    assert_eq!(numbers(&place), (Launcher::Pmi, [1, 3, 1, 3]));
    assert!(matches!(place.hub, Hub::Local(_)));
}

#[test]
fn the_inner_launcher_counts() {
    let all = [EXPLICIT, TORCHRUN, OMPI, HYDRA, SRUN];
    let expected =
        [Launcher::Variables, Launcher::Torchrun, Launcher::OpenMpi, Launcher::Pmi, Launcher::Slurm];
    for (at, launcher) in expected.into_iter().enumerate() {
        let env = all[at..].concat();
        let env = with(&env, &[("MASTER_ADDR", "n1")]);
        assert_eq!(found(&env).launcher, launcher);
    }
    // srun --mpi=pmi2 sets PMI_RANK as well, without local numbers.
    let pmi2 = with(SRUN, &[("PMI_RANK", "4"), ("PMI_SIZE", "5")]);
    assert_eq!(numbers(&found(&pmi2)), (Launcher::Slurm, [4, 5, 0, 1]));
}

#[test]
fn what_does_not_fit_is_named() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("WEFT_RANK", "16")], r#"WEFT_RANK is "16", but it must be a number from 0 to 15"#),
        (&[("WEFT_RANK", "-1")], r#"WEFT_RANK is "-1", but it must be a number from 0 to 15"#),
        (&[("WEFT_SIZE", "0")], r#"WEFT_SIZE is "0", but it must be a number from 1 to 65536"#),
        (&[("WEFT_SIZE", "many")], r#"WEFT_SIZE is "many", but it must be a number from 1 to 65536"#),
        (
            &[("WEFT_SIZE", "99999999999")],
            r#"WEFT_SIZE is "99999999999", but it must be a number from 1 to 65536"#,
        ),
        (&[("WEFT_LOCAL_RANK", "8")], r#"WEFT_LOCAL_RANK is "8", but it must be a number from 0 to 7"#),
        (&[("WEFT_LOCAL_SIZE", "17")], r#"WEFT_LOCAL_SIZE is "17", but it must be a number from 1 to 16"#),
        (&[("WEFT_ADDR", "node0")], r#"WEFT_ADDR is "node0", but it must be host:port"#),
        (&[("WEFT_ADDR", "node0:0")], r#"WEFT_ADDR is "node0:0", but it must be host:port"#),
        (&[("WEFT_ADDR", ":80")], r#"WEFT_ADDR is ":80", but it must be host:port"#),
        (&[("WEFT_ADDR", "@")], r#"WEFT_ADDR is "@", but it must be host:port"#),
    ];
    for (change, message) in cases {
        assert_eq!(refused(&with(EXPLICIT, change)), *message);
    }
    let missing: &[(&str, &str)] = &[
        ("WEFT_SIZE", "WEFT_RANK is set, but WEFT_SIZE is not"),
        ("WEFT_RANK", "WEFT_SIZE is set, but WEFT_RANK is not"),
    ];
    for (name, message) in missing {
        assert_eq!(refused(&with(EXPLICIT, &[(name, "")])), *message);
    }
    let here = [("WEFT_RANK", "0"), ("WEFT_SIZE", "2")];
    assert_eq!(refused(&here), "WEFT_RANK is set, but WEFT_ADDR is not");
    let port = with(TORCHRUN, &[("LOCAL_WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("WEFT_PORT", "70000")]);
    assert_eq!(refused(&port), r#"WEFT_PORT is "70000", but it must be a number from 1 to 65535"#);
}

#[test]
fn lists_of_slurm() {
    for (list, first) in [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[03-07,9]-a,login", "n03-a"),
        ("rack[1-2]node[4,7]", "rack1node4"),
        ("gpu-a-[12]", "gpu-a-12"),
        ("", ""),
    ] {
        assert_eq!(first_host(list), first, "{list}");
    }
    let tasks: Vec<_> = (0..5).map(|node| tasks_on("2(x3),1", node)).collect();
    assert_eq!(tasks, [Some(2), Some(2), Some(2), Some(1), None]);
    for bad in ["", "x", "2(x", "2(xq)", "2(x4294967295),1(x2)"] {
        assert_eq!(tasks_on(bad, u32::MAX), None, "{bad}");
    }
}

#[test]
fn addresses_are_written_as_they_are_read() {
    for text in ["@weft-0-1", "node0:29600", "[::1]:7000"] {
        let vars = [("WEFT_ADDR", text)];
        let hub = given_hub(&Vars(&|name| vars.iter().find(|e| e.0 == name).map(|e| e.1.to_string())));
        assert_eq!(hub.unwrap().unwrap().to_string(), text);
    }
}

/// Rank, size and address are enough: what is left the PEs tell each other.
#[test]
fn local_numbers_may_be_missing() {
    let weft = [("WEFT_RANK", "1"), ("WEFT_SIZE", "2"), ("WEFT_ADDR", "node0:29600")];
    let torch = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "node0"), ("MASTER_PORT", "29500")];
    for (env, port) in [(&weft[..], Some(29600)), (&torch[..], None)] {
        let place = found(env);
        assert_eq!((place.local_rank, place.local_size), (None, None));
        let Hub::Tcp(host, at) = place.hub else { panic!("TCP to {env:?}") };
        assert_eq!((host.as_str(), port.unwrap_or(at)), ("node0", at));
    }
    let one = found(&with(&torch, &[("LOCAL_RANK", "1")]));
    assert_eq!((one.local_rank, one.local_size), (Some(1), None));
    assert!(refused(&[("RANK", "1"), ("WORLD_SIZE", "2")]).contains("the host of PE 0 is not known"));
}

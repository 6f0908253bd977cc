//! Shared memory that NVSHMEM leaves behind when it is ended before its end: `mps_shm_N`, where PEs share a GPU.
//! Its names are the same in every job, so one left behind keeps the next from starting.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "mps_shm_";

/// What was there before the job.
pub(super) struct Before(BTreeSet<(String, u64)>);

impl Before {
    pub fn look() -> Before {
        Before(entries(Path::new(FOLDER)))
    }

    /// Removes what came since, is this user's, and is mapped by no process.
    pub fn clean(self) {
        let new: Vec<String> = entries(Path::new(FOLDER)).difference(&self.0).map(|e| e.0.clone()).collect();
        for name in new {
            let path = format!("{FOLDER}/{name}");
            if !is_mapped(&path) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// This user's, by name and inode.
fn entries(folder: &Path) -> BTreeSet<(String, u64)> {
    let user = nix::unistd::geteuid().as_raw();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let about = entry.metadata().ok()?;
        let number = name.strip_prefix(PREFIX)?;
        let named = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        (named && about.is_file() && about.uid() == user).then(|| (name, about.ino()))
    });
    ours.collect()
}

fn is_mapped(path: &str) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| fs::read_to_string(process.path().join("maps")).ok())
        .any(|maps| maps.lines().any(|line| line.ends_with(path)))
}

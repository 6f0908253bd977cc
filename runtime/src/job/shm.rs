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

    /// Removes what came since, is this user's, and is open in no process that this user can see.
    pub fn clean(self) {
        let new: Vec<String> = entries(Path::new(FOLDER)).difference(&self.0).map(|e| e.0.clone()).collect();
        for name in new {
            let path = format!("{FOLDER}/{name}");
            if !is_open(&path) {
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

fn is_open(path: &str) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|process| process.path());
    processes.into_iter().any(|process| {
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        maps.lines().any(|line| line.ends_with(path))
            || files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == Path::new(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_job_left_is_removed_and_nothing_else() {
        let path = |n: u32| format!("{FOLDER}/{PREFIX}{}{n}", std::process::id());
        let (old, open, left, other) = (path(1), path(2), path(3), path(4) + "x");
        fs::write(&old, "").unwrap();
        let before = Before::look();
        let file = fs::File::create(&open).unwrap();
        fs::write(&left, "").unwrap();
        fs::write(&other, "").unwrap();
        before.clean();
        let there: Vec<bool> = [&old, &open, &left, &other].iter().map(|p| Path::new(p).exists()).collect();
        drop(file);
        for path in [old, open, left, other] {
            let _ = fs::remove_file(path);
        }
        assert_eq!(there, [true, true, false, true]);
    }
}

//! Shared memory that an aborted NVSHMEM leaves behind: `mps_shm_N`, if PEs share a GPU. The names
//! are the same in every job, so a remaining segment prevents the next job from starting.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "mps_shm_";

/// A segment: its name, and its inode, which distinguishes it from a later one of the same name.
pub(super) type Segment = (String, u64);

/// Segments that a job may have left.
pub(super) struct Segments {
    /// The segments that existed before the job.
    before: BTreeSet<Segment>,
    /// The segments that a PE of the job had mapped.
    ours: BTreeSet<Segment>,
}

impl Segments {
    /// Lists the existing segments before a job.
    pub fn before() -> Segments {
        Segments { before: entries(Path::new(FOLDER)), ours: BTreeSet::new() }
    }

    /// Adds segments that a PE has mapped.
    pub fn add(&mut self, mapped: impl IntoIterator<Item = Segment>) {
        self.ours.extend(mapped);
    }

    /// Removes the segments that a PE of the job had mapped, that did not exist before the job,
    /// that belong to this user, and that are open in no process visible to this user. Other new
    /// segments may belong to another job, in a container that shares the folder and whose
    /// processes are not visible here.
    pub fn clean(self) {
        let there = entries(Path::new(FOLDER));
        for segment in self.ours.difference(&self.before).filter(|segment| there.contains(*segment)) {
            let path = format!("{FOLDER}/{}", segment.0);
            if !is_open(&path) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// The segments that a process, given by number or `self`, has mapped.
pub(super) fn mapped(process: &str) -> Vec<Segment> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let mut all: Vec<Segment> = maps.lines().filter_map(segment).collect();
    all.dedup();
    all
}

/// The segment of a line of a process's maps (proc(5)): addresses, rights, offset, device, inode, path.
fn segment(line: &str) -> Option<Segment> {
    let columns: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, _, _, _, inode, path] = columns[..] else { return None };
    let name = path.strip_prefix(FOLDER)?.strip_prefix('/')?;
    is_named(name).then_some((name.to_owned(), inode.parse().ok()?))
}

fn is_named(name: &str) -> bool {
    let number = name.strip_prefix(PREFIX);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The segments of this user, by name and inode.
fn entries(folder: &Path) -> BTreeSet<(String, u64)> {
    let user = nix::unistd::geteuid().as_raw();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let about = entry.metadata().ok()?;
        (is_named(&name) && about.is_file() && about.uid() == user).then(|| (name, about.ino()))
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
        let (old, open, left, others, other) = (path(1), path(2), path(3), path(4), path(5) + "x");
        fs::write(&old, "").unwrap();
        let mut segments = Segments::before();
        let file = fs::File::create(&open).unwrap();
        for path in [&left, &others, &other] {
            fs::write(path, "").unwrap();
        }
        // A PE has mapped these; a process of another container has created `others` meanwhile.
        let seen = |path: &String| {
            let name = Path::new(path).file_name().unwrap().to_str().unwrap();
            let inode = fs::metadata(path).unwrap().ino();
            segment(&format!("7f00-7f01 rw-s 00000000 00:1a {inode}      {FOLDER}/{name}"))
        };
        assert_eq!(seen(&other), None);
        segments.add([&old, &open, &left].into_iter().filter_map(seen));
        // This is a segment of a PE that is gone, and whose name now belongs to another.
        segments.add([(others.rsplit('/').next().unwrap().to_owned(), 1)]);
        segments.clean();
        let there: Vec<bool> =
            [&old, &open, &left, &others, &other].iter().map(|p| Path::new(p).exists()).collect();
        drop(file);
        for path in [old, open, left, others, other] {
            let _ = fs::remove_file(path);
        }
        assert_eq!(there, [true, true, false, true, true]);
    }

    #[test]
    fn lines_of_maps() {
        for line in [
            "7f0000000000-7f0000001000 rw-s 00000000 00:1a 77      /dev/shm/mps_shm_7 (deleted)",
            "7f0000000000-7f0000001000 rw-p 00000000 00:00 0",
            "7f0000000000-7f0000001000 r-xp 00000000 08:01 99      /usr/lib/libc.so.6",
            "7f0000000000-7f0000001000 rw-s 00000000 00:1a 78      /dev/shm/mps_shm_",
            "",
        ] {
            assert_eq!(segment(line), None, "{line}");
        }
        assert!(mapped("self").is_empty());
    }
}

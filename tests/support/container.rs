//! A cgroup with a limit of memory, below the one that we are in; v2, or v1 where memory is counted by that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Container {
    folder: PathBuf,
    /// Whether it is to be removed by us: a child joins what its parent has made.
    ours: bool,
}

/// The cgroup of this process that counts memory, and the file that limits it.
fn place() -> io::Result<(PathBuf, &'static str)> {
    let memberships = fs::read_to_string("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    for (controller, kind, file) in
        [(":memory:", "- cgroup ", "memory.limit_in_bytes"), ("0::", "- cgroup2 ", "memory.max")]
    {
        let path = memberships.lines().find_map(|line| line.split_once(controller).map(|(_, path)| path));
        let mount = mounts.lines().find(|line| {
            line.contains(kind) && (kind == "- cgroup2 " || line.trim_end().ends_with("memory"))
        });
        if let (Some(path), Some(mount)) = (path, mount) {
            let top = mount.split(' ').nth(4).unwrap_or("/sys/fs/cgroup");
            return Ok((Path::new(top).join(path.trim_start_matches('/')), file));
        }
    }
    Err(io::Error::other("none is mounted"))
}

impl Container {
    /// Makes one with a limit in bytes, or finds the one that the parent of this process has made.
    pub(crate) fn new(name: &str, limit: usize) -> io::Result<Self> {
        const MADE: &str = "ZK_NALLOC_TEST_CHILD";
        let (above, file) = place()?;
        if std::env::var_os(MADE).is_some() {
            let folder = above.join(format!("zk_nalloc_{}_{name}", std::os::unix::process::parent_id()));
            return Ok(Self { folder, ours: false });
        }
        let folder = above.join(format!("zk_nalloc_{}_{name}", std::process::id()));
        fs::create_dir(&folder)?;
        // From here on it is removed, whatever happens.
        let container = Self { folder, ours: true };
        fs::write(container.folder.join(file), limit.to_string())?;
        Ok(container)
    }

    /// Moves this process into it.
    pub(crate) fn join(&self) {
        fs::write(self.folder.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

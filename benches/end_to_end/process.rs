//! A program that is measured, with all the processes that it starts: their processor time and memory, as the
//! kernel counts them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `utime` and `stime` are counted in these, on every Linux of today.
const TICKS_PER_SECOND: f64 = 100.0;
const GRACE: Duration = Duration::from_secs(3);

/// Ended when it is dropped.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts it, with what it says going to a file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Process, String> {
        let log = fs::File::create(log).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().map_err(|error| {
            format!("{} does not start: {error}", command.get_program().to_string_lossy())
        })?;
        Ok(Process { child })
    }

    /// Whether it still runs.
    pub(crate) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Seconds of processor time so far, of it and all below it, to the hundredth.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let ticks = |stat: Stat| stat.ticks;
        tree(self.child.id()).into_iter().filter_map(stat).map(ticks).sum::<u64>() as f64
            / TICKS_PER_SECOND
    }

    /// Resident bytes of it and all below it.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let of = |pid: u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()
        };
        1024 * tree(self.child.id()).into_iter().filter_map(of).sum::<u64>()
    }

    fn signal(&self, signal: &str) {
        let pids = tree(self.child.id()).into_iter().map(|pid| pid.to_string());
        let _ = Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal("-TERM");
        let end = Instant::now() + GRACE;
        while self.lives() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.lives() {
            self.signal("-KILL");
        }
        let _ = self.child.wait();
    }
}

struct Stat {
    parent: u32,
    ticks: u64,
}

/// What `/proc/PID/stat` says. The name in it may hold anything, so it is read from its end.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text[text.rfind(')')? + 2..].split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat { parent: number(1)? as u32, ticks: number(11)? + number(12)? })
}

/// A process and all that descend from it.
fn tree(root: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?.parent)))
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

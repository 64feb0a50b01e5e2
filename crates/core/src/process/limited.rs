//! Small programs that are asked something, within a limit.

use super::{dies_with_us, is_readable_within};
use rustix::pipe::PipeFlags;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The most that is read of what a small program prints.
const MOST_PRINTED: usize = 1 << 20;

/// Runs a small program to its end and gives what it printed; kills it at the limit, or if we are killed.
///
/// Never takes longer than the limit, and starts no thread: `nvidia-smi` on a broken driver cannot even be killed,
/// and its child may keep the pipe open. Such a one is left alone; it ends when the kernel lets it.
pub(crate) fn run_with_limit(command: &mut Command, limit: Duration) -> Result<String, String> {
    let (stdout, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|error| error.to_string())?;
    // Only our end does not wait.
    rustix::fs::fcntl_setfl(&theirs, rustix::fs::OFlags::empty()).map_err(|error| error.to_string())?;
    let mut child = dies_with_us(command)
        .stdin(Stdio::null())
        .stdout(theirs)
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    // The command keeps its end of the pipe otherwise, and no end would be seen.
    command.stdout(Stdio::null());
    let deadline = Instant::now() + limit;
    let late = || format!("no answer within {} s", limit.as_secs_f64());
    let mut stdout = std::fs::File::from(stdout);
    let mut printed = Vec::new();
    let mut open = true;
    loop {
        open = open && read_some(&mut stdout, &mut printed);
        let status = child.try_wait().map_err(|error| error.to_string())?;
        match status {
            Some(status) if !status.success() => return Err(status.to_string()),
            Some(_) if !open => break,
            // What it has started may still print, or only hold the pipe: until the limit.
            _ if Instant::now() < deadline => {}
            Some(_) => break,
            None => {
                _ = child.kill();
                // Reaped if it goes at once; one that cannot be killed is nobody's to wait for.
                std::thread::sleep(Duration::from_millis(2));
                _ = child.try_wait();
                return Err(late());
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if open {
            _ = is_readable_within(&stdout, left.min(Duration::from_millis(5)));
        } else {
            std::thread::sleep(left.min(Duration::from_millis(1)));
        }
    }
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// Takes what has come; false when nothing more will.
fn read_some(from: &mut std::fs::File, into: &mut Vec<u8>) -> bool {
    let mut chunk = [0; 4096];
    loop {
        match std::io::Read::read(from, &mut chunk) {
            Ok(0) => return false,
            // What is too much is read all the same, or the program would never end.
            Ok(count) => into.extend_from_slice(&chunk[..count.min(MOST_PRINTED - into.len())]),
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_given_up() {
        let error = run_with_limit(Command::new("sleep").arg("60"), Duration::from_millis(50)).unwrap_err();
        assert!(error.contains("no answer"), "{error}");
    }

    #[test]
    fn what_a_program_prints_comes_whole_and_its_children_are_not_awaited() {
        let run = |script: &str, limit| run_with_limit(Command::new("sh").args(["-c", script]), limit);
        let limit = Duration::from_secs(20);
        assert_eq!(run("echo GPU 0", limit), Ok("GPU 0\n".to_owned()));
        assert_eq!(run("seq 100000 | wc -l; exit 0", limit), Ok("100000\n".to_owned()));
        assert_eq!(run("seq 200000", limit).map(|text| text.len()), Ok(MOST_PRINTED));
        assert_eq!(run("exit 3", limit), Err("exit status: 3".to_owned()));
        // A child that holds the pipe must not hold us: nvidia-smi's may hang in the driver.
        let answer = run("sleep 30 & echo $!", Duration::from_secs(1)).unwrap();
        assert!(answer.trim().parse::<u32>().is_ok(), "{answer}");
        run_with_limit(Command::new("kill").arg(answer.trim()), limit).unwrap();
    }
}

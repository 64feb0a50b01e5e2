//! A log file of one stream of one member.

use crate::lane::{self, Loss, Losses, Progress};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One of a member's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// A file with what a member wrote.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    path: String,
    /// Bytes that are missing since it was last written to.
    gap: AtomicU64,
    /// Bytes that a member has written and that are not in the file yet, nor told as lost.
    pub(super) pending: AtomicU64,
}

impl LogFile {
    /// Opens `DIR/attempt-0/worker-1.out`.
    pub(super) fn open(folder: &Path, name: &str, stream: Stream) -> io::Result<Arc<LogFile>> {
        let ending = match stream {
            Stream::Stdout => "out",
            Stream::Stderr => "err",
        };
        let path = folder.join(format!("{name}.{ending}"));
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        // A named pipe that nobody reads is an error, not a wait.
        let file = File::options()
            .create(true)
            .append(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .map_err(named)?;
        Ok(Arc::new(LogFile {
            file,
            path: path.display().to_string(),
            gap: AtomicU64::new(0),
            pending: AtomicU64::new(0),
        }))
    }

    /// What the file has not got so far.
    pub(super) fn unwritten(&self) -> Option<Loss> {
        let bytes = self.pending.load(Ordering::Relaxed);
        let why = "its file system took too long at the end".to_owned();
        (bytes > 0).then(|| Loss { path: self.path.clone(), bytes, why })
    }

    /// Tries every time: a full disk may have room again. Where something is missing, a line says so.
    pub(super) fn write(&self, bytes: &[u8], progress: &Progress, losses: &mut Losses) {
        let gap = self.gap.load(Ordering::Relaxed);
        if gap > 0 {
            let line =
                format!("\n... rallypoint: {gap} bytes are missing here, which could not be written\n");
            if lane::write_all(&self.file, line.as_bytes(), progress).is_ok() {
                self.gap.store(0, Ordering::Relaxed);
            }
        }
        if let Err((missing, error)) = lane::write_all(&self.file, bytes, progress) {
            self.gap.fetch_add(missing as u64, Ordering::Relaxed);
            losses.tell(&self.path, missing, &error.to_string());
        }
    }
}

//! Chirp: how a job of HTCondor reads and writes on its submit host, file system shared or not.
//!
//! The starter listens on loopback; the file that `_CONDOR_CHIRP_CONFIG` names tells where, and the
//! secret by which the job is known: `127.0.0.1 43887 cjordjerxzytosnwzzkbixtmcqibtto`. Requests are a
//! line each, and so are the answers: a number that is negative for an error, bytes behind it where
//! there are some.
//!
//! ```text
//! > cookie cjordjerx...                    < 0
//! > open rallypoint-12.meet wcx 384        < -4                  (it exists)
//! > open rallypoint-12.meet r 0            < 4
//!                                          < 65024 5907186 33152 1 1000 1000 0 211 4096 8 17947817 ...
//! > read 4 65536                           < 211, and 211 bytes
//! > get_job_attr RallypointLeader0         < 9, and UNDEFINED
//! ```
//!
//! Seen with 23.9 and 25.14. `putfile` is left alone: after one into a folder that was not there, a job
//! had lost its submit host. Words of a request are parted by spaces; a space inside one has a `\`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The submit host may be busy; the starter beside us waits for it.
const ANSWER: Duration = Duration::from_secs(20);
const CONNECT: Duration = Duration::from_secs(5);
/// Longer lines are refused by the starter, and none that it sends is longer.
const MAX_LINE: u64 = 4096;
/// Nothing that is asked for here comes near it.
const MAX_BYTES: u64 = 1 << 20;

/// Where this job's chirp is, and the word that opens it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Chirp {
    host: String,
    port: u16,
    cookie: String,
}

impl std::fmt::Debug for Chirp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chirp({}:{})", self.host, self.port)
    }
}

/// What is known of a file on the submit host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) inode: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    /// Seconds, by the submit host's clock.
    pub(super) modified: i64,
}

impl Chirp {
    /// Reads the text of the file that `_CONDOR_CHIRP_CONFIG` names.
    pub(super) fn parse(config: &str) -> Option<Chirp> {
        let mut words = config.split_ascii_whitespace();
        let (host, port, cookie) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(Chirp { host: host.to_owned(), port, cookie: cookie.to_owned() })
    }

    /// Connects, and proves that this is the job.
    pub(super) fn connect(&self) -> io::Result<Session> {
        let address = (self.host.as_str(), self.port).to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other(format!("{} has no address", self.host)))?;
        let stream = TcpStream::connect_timeout(&address, CONNECT)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        stream.set_nodelay(true)?;
        let mut session = Session::over(stream);
        session.request(&format!("cookie {}", word(&self.cookie)))?;
        Ok(session)
    }
}

/// One connection. It is for a few requests: the starter may lose its submit host between them.
#[derive(Debug)]
pub(super) struct Session<S = TcpStream> {
    stream: BufReader<S>,
}

impl<S: Read + Write> Session<S> {
    /// Over a connection on which nothing was said yet.
    pub(super) fn over(stream: S) -> Session<S> {
        Session { stream: BufReader::new(stream) }
    }

    /// The connection, for one that wants to know what was asked.
    #[cfg(feature = "fuzzing")]
    pub(super) fn into_inner(self) -> S {
        self.stream.into_inner()
    }

    /// Makes a file that did not exist, mode 0600; its status.
    pub(super) fn create(&mut self, path: &str, content: &[u8]) -> io::Result<Status> {
        let (file, status) = self.open(path, "wcx")?;
        let written = self.write(file, content);
        let closed = self.request(&format!("close {file}"));
        written.and(closed.map(|_| status))
    }

    /// A file's content and status; whoever put a link there could point it anywhere, so it is not followed.
    pub(super) fn read(&mut self, path: &str, limit: usize) -> io::Result<(Vec<u8>, Status)> {
        let named = self.status(path)?;
        if !named.is_file() {
            return Ok((Vec::new(), named));
        }
        let (file, status) = self.open(path, "r")?;
        let content = self.read_all(file, limit);
        self.request(&format!("close {file}"))?;
        match status.inode == named.inode {
            true => Ok((content?, status)),
            false => Err(io::Error::other("it was replaced while it was read")),
        }
    }

    /// A file's status; of a link itself, not of what it names.
    pub(super) fn status(&mut self, path: &str) -> io::Result<Status> {
        self.request(&format!("lstat {}", word(path)))?;
        let line = self.line()?;
        Status::parse(&line).ok_or_else(|| nonsense(&line))
    }

    /// A second name for a file; fails if it is taken.
    pub(super) fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.request(&format!("link {} {}", word(from), word(to))).map(|_| ())
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        self.request(&format!("unlink {}", word(path))).map(|_| ())
    }

    /// An attribute of the job's ad as it is written there; `None` if it is undefined.
    pub(super) fn attribute(&mut self, name: &str) -> io::Result<Option<String>> {
        let length = self.request(&format!("get_job_attr {name}"))?;
        let text = String::from_utf8_lossy(&self.bytes(length)?).into_owned();
        Ok(Some(text).filter(|text| !text.eq_ignore_ascii_case("undefined")))
    }

    pub(super) fn set_attribute(&mut self, name: &str, expression: &str) -> io::Result<()> {
        self.request(&format!("set_job_attr {name} {}", word(expression))).map(|_| ())
    }

    fn open(&mut self, path: &str, flags: &str) -> io::Result<(u64, Status)> {
        let file = self.request(&format!("open {} {flags} {}", word(path), 0o600))?;
        let line = self.line()?;
        Ok((file, Status::parse(&line).ok_or_else(|| nonsense(&line))?))
    }

    fn write(&mut self, file: u64, content: &[u8]) -> io::Result<()> {
        let mut left = content;
        while !left.is_empty() {
            self.stream.get_mut().write_all(format!("write {file} {}\n", left.len()).as_bytes())?;
            self.stream.get_mut().write_all(left)?;
            let written = self.answer()? as usize;
            left = match written {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                _ => left.get(written..).unwrap_or_default(),
            };
        }
        Ok(())
    }

    fn read_all(&mut self, file: u64, limit: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        while content.len() < limit {
            let wanted = limit - content.len();
            match self.request(&format!("read {file} {wanted}"))? {
                0 => break,
                length if length > wanted as u64 => return Err(nonsense(&length.to_string())),
                length => content.extend(self.bytes(length)?),
            }
        }
        Ok(content)
    }

    fn request(&mut self, line: &str) -> io::Result<u64> {
        if line.contains(['\n', '\r', '\0']) || line.len() as u64 >= MAX_LINE {
            return Err(io::Error::other(format!("{line:?} cannot be said in chirp")));
        }
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<u64> {
        let line = self.line()?;
        match line.trim().parse::<i64>() {
            Ok(number) => u64::try_from(number).map_err(|_| refusal(number)),
            Err(_) => Err(nonsense(&line)),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.stream).take(MAX_LINE).read_until(b'\n', &mut line)?;
        match line.ends_with(b"\n") {
            true => Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn bytes(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if length > MAX_BYTES {
            return Err(nonsense(&length.to_string()));
        }
        let mut bytes = Vec::new();
        (&mut self.stream).take(length).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }
}

impl Status {
    /// `65024 5907186 33152 1 1000 1000 0 211 4096 8 1794781763 1794781763 1794781763`: device, inode,
    /// mode, links, user, group, device, size, block size, blocks, and three times.
    fn parse(line: &str) -> Option<Status> {
        let numbers: Vec<i64> =
            line.split_ascii_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Status {
            inode: *numbers.get(1)? as u64,
            mode: *numbers.get(2)? as u32,
            uid: *numbers.get(4)? as u32,
            modified: *numbers.get(11)?,
        })
    }

    pub(super) fn is_file(self) -> bool {
        self.mode & 0o170000 == 0o100000
    }
}

/// A word of a request: spaces and backslashes have a backslash.
fn word(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, ' ' | '\t' | '\\') {
            word.push('\\');
        }
        word.push(character);
    }
    word
}

fn nonsense(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{line:?} is no answer of chirp"))
}

fn refusal(number: i64) -> io::Error {
    use io::ErrorKind::{AlreadyExists, NotFound, Other, PermissionDenied};
    let (kind, what) = match number {
        -1 => (PermissionDenied, "chirp does not know this job"),
        -2 => (PermissionDenied, "not allowed"),
        -3 => (NotFound, "it does not exist"),
        -4 => (AlreadyExists, "it exists already"),
        -5 => (Other, "too big"),
        -6 => (Other, "no space left"),
        -8 => (Other, "chirp does not know this request, or this job may not make it"),
        -10 => (Other, "busy"),
        -13 => (Other, "it is a directory"),
        _ => return io::Error::other(format!("chirp error {number}")),
    };
    io::Error::new(kind, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A starter that gives these answers, one a request, and tells what it was asked.
    fn starter(answers: &[&'static [u8]]) -> (Chirp, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = answers.to_vec();
        let thread = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut asked = Vec::new();
            for answer in answers {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if let Some(length) = line.strip_prefix("write 4 ").and_then(|n| n.trim().parse().ok()) {
                    let mut content = vec![0; length];
                    stream.read_exact(&mut content).unwrap();
                    line.push_str(&String::from_utf8(content).unwrap());
                }
                asked.push(line.trim_end().to_owned());
                stream.get_mut().write_all(answer).unwrap();
            }
            asked
        });
        (Chirp::parse(&format!("127.0.0.1 {port} secret\n")).unwrap(), thread)
    }

    const STATUS: &[u8] = b"0\n65024 77 33152 1 1000 1000 0 3 4096 8 10 11 12\n";
    const OPENED: &[u8] = b"4\n65024 77 33152 1 1000 1000 0 3 4096 8 10 11 12\n";

    #[test]
    fn a_file_is_made_exclusively_and_read_back() {
        let (chirp, thread) = starter(&[b"0\n", OPENED, b"2\n", b"1\n", b"0\n"]);
        let status = chirp.connect().unwrap().create("a b", b"xyz").unwrap();
        assert_eq!(status, Status { inode: 77, mode: 0o100600, uid: 1000, modified: 11 });
        assert_eq!(
            thread.join().unwrap(),
            ["cookie secret", "open a\\ b wcx 384", "write 4 3\nxyz", "write 4 1\nz", "close 4"]
        );
        let (chirp, thread) = starter(&[b"0\n", STATUS, OPENED, b"3\nxyz", b"0\n", b"0\n"]);
        let (content, status) = chirp.connect().unwrap().read("m", 100).unwrap();
        assert_eq!((content.as_slice(), status.is_file()), (b"xyz".as_slice(), true));
        assert_eq!(thread.join().unwrap()[3..], ["read 4 100", "read 4 97", "close 4"]);
    }

    #[test]
    fn refusals_have_their_kind() {
        let (chirp, _thread) = starter(&[b"0\n", b"-4\n", b"-3\n", b"-127\n", b"9\nUNDEFINED", b"4\n\"hi\""]);
        let mut session = chirp.connect().unwrap();
        assert_eq!(session.create("x", b"").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(session.read("x", 1).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(session.link("x", "y").unwrap_err().to_string(), "chirp error -127");
        assert_eq!(session.attribute("X").unwrap(), None);
        assert_eq!(session.attribute("X").unwrap().as_deref(), Some("\"hi\""));
    }

    #[test]
    fn nonsense_is_an_error_and_never_more() {
        let answers: [&[u8]; 6] =
            [b"hello\n", b"0\nno status\n", b"", b"99999999999999999999\n", b"4\n\n", b"4\n1 2 3\n"];
        for answer in answers {
            let answer: &'static [u8] = answer.to_vec().leak();
            let (chirp, _thread) = starter(&[b"0\n", answer]);
            assert!(chirp.connect().unwrap().read("x", 10).is_err(), "{answer:?}");
        }
        let (chirp, _thread) = starter(&[b"0\n", STATUS, OPENED, b"3\nxyz", b"3\nxyz", b"0\n"]);
        let error = chirp.connect().unwrap().read("x", 5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "2 bytes were asked for");
        let (chirp, _thread) = starter(&[b"0\n", b"1099511627776\nx"]);
        assert_eq!(
            chirp.connect().unwrap().attribute("X").unwrap_err().to_string(),
            r#""1099511627776" is no answer of chirp"#
        );
        let (chirp, _thread) = starter(&[b"0\n"]);
        assert!(chirp.connect().unwrap().remove("a\nunlink b").is_err(), "one request is one line");
        for config in ["", "127.0.0.1", "127.0.0.1 x y", "127.0.0.1 99999 y"] {
            assert_eq!(Chirp::parse(config), None);
        }
    }
}

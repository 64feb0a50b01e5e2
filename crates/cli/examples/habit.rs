//! A program with one bad habit, for the tests of `rallypoint run`: `habit NAME [ARGS]`.

#![expect(
    clippy::unwrap_used,
    clippy::exit,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::zombie_processes,
    reason = "a test program, and leaving processes behind is one of its habits"
)]

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

// A list, one arm per habit, however long.
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let only: Vec<&str> = args.iter().map(String::as_str).collect();
    match only.as_slice() {
        // Ends only by SIGKILL. The file tells that it is so.
        ["ignores-sigterm", file] => {
            ignore("TERM");
            std::fs::write(file, "").unwrap();
            forever()
        }
        // Leaves a process in a session of its own that ignores SIGTERM, and ends.
        ["forks-and-leaves", mark] => {
            Command::new("setsid")
                .args([
                    "sh",
                    "-c",
                    &format!("trap '' TERM; echo {mark} >/dev/null; sleep 1000 & wait; sleep 1000"),
                ])
                .spawn()
                .unwrap();
        }
        // The same, but stays itself.
        ["forks-and-stays", mark] => {
            Command::new("setsid")
                .args(["sh", "-c", &format!("trap '' TERM; echo {mark} >/dev/null; sleep 1000; sleep 1000")])
                .spawn()
                .unwrap();
            forever()
        }
        // Forks into a session of its own and lets the parent exit, again and again, for a minute at the most.
        ["escapes", mark, pause_ms] => {
            for _ in 0..3 {
                escape(mark, pause_ms, "60000");
            }
        }
        ["escapes", mark, pause_ms, left_ms] => {
            let (pause, left): (u64, u64) = (pause_ms.parse().unwrap(), left_ms.parse().unwrap());
            std::thread::sleep(Duration::from_millis(pause));
            if left > pause {
                escape(mark, pause_ms, &(left - pause.max(1)).to_string());
            }
        }
        ["floods", megabytes] => {
            let line = [b'x'; 99].iter().copied().chain([b'\n']).collect::<Vec<u8>>().repeat(1000);
            let mut stdout = std::io::stdout().lock();
            for _ in 0..megabytes.parse::<usize>().unwrap() * 10 {
                stdout.write_all(&line).unwrap();
            }
        }
        ["half-lines"] => {
            let mut stdout = std::io::stdout().lock();
            for _ in 0..50 {
                for part in ["a begin", "ning, ", "an end\n"] {
                    stdout.write_all(part.as_bytes()).unwrap();
                    stdout.flush().unwrap();
                }
            }
            stdout.write_all(b"\x00\xff\xfebinary\n no end").unwrap();
        }
        ["closes-its-stdio", code] => {
            // What a daemon does.
            let script = format!("exec <&- >&- 2>&-; sleep 0.2; exit {code}");
            std::process::exit(Command::new("sh").args(["-c", &script]).status().unwrap().code().unwrap());
        }
        ["exits", code] => std::process::exit(code.parse().unwrap()),
        ["exits-late", code] => {
            std::thread::sleep(Duration::from_millis(400));
            std::process::exit(code.parse().unwrap())
        }
        ["dies-of", signal] => loop {
            // Twice for SIGSEGV: the first one, not a true fault, only ends Rust's own handler.
            Command::new("kill")
                .args([&format!("-{signal}"), &std::process::id().to_string()])
                .status()
                .unwrap();
            std::thread::sleep(Duration::from_millis(20));
        },
        ["never-listens"] => forever(),
        // Listens on its own port as TensorFlow does, and tells.
        ["listens"] => {
            let address = std::env::var("RALLYPOINT_ADDRESS").unwrap();
            let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
            let listener = std::net::TcpListener::bind(("::", port)).unwrap();
            println!("listening on {port}");
            forever_with(listener)
        }
        // Listens, and is done when a file is there.
        ["listens-until", file] => {
            let address = std::env::var("RALLYPOINT_ADDRESS").unwrap();
            let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
            let _listener = std::net::TcpListener::bind(("::", port)).unwrap();
            let started = Instant::now();
            while !std::path::Path::new(file).exists() {
                assert!(started.elapsed() < Duration::from_secs(300), "{file} has not come");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // Takes a lock and waits for it for ever.
        ["hangs"] => {
            let (sender, receiver) = std::sync::mpsc::channel::<()>();
            _ = receiver.recv();
            drop(sender);
        }
        // Fails the first time, and not the second; the file remembers.
        ["fails-once", file] => {
            if std::fs::File::options().write(true).create_new(true).open(file).is_ok() {
                eprintln!("failing for the first time");
                std::process::exit(7);
            }
        }
        // Writes down that it got a signal, then ends.
        ["tells-signal", file] => {
            let script = format!(
                "trap 'echo got TERM > {file}; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
            );
            std::process::exit(
                Command::new("sh").args(["-c", &script]).status().unwrap().code().unwrap_or(1),
            );
        }
        ["reads-stdin"] => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).unwrap();
            println!("stdin had {} bytes", text.len());
        }
        other => panic!("no such habit: {other:?}"),
    }
}

fn escape(mark: &str, pause_ms: &str, left_ms: &str) {
    let me = std::env::current_exe().unwrap();
    // Until the last look nobody may run out of processes.
    _ = Command::new("setsid").arg(me).args(["escapes", mark, pause_ms, left_ms]).spawn();
}

/// For this process and what it starts: by a shell, since the standard library cannot.
fn ignore(signal: &str) {
    use std::os::unix::process::CommandExt;
    if std::env::var_os("HABIT_IGNORES").is_none() {
        let me = std::env::current_exe().unwrap();
        let script = format!("trap '' {signal}; exec \"$0\" \"$@\"");
        let error = Command::new("sh")
            .args(["-c", &script])
            .arg(me)
            .args(std::env::args().skip(1))
            .env("HABIT_IGNORES", "1")
            .exec();
        panic!("{error}");
    }
}

fn forever() -> ! {
    forever_with(())
}

/// Not quite: a test that goes wrong should leave nothing for long.
fn forever_with<T>(kept: T) -> ! {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(300) {
        std::thread::sleep(Duration::from_secs(1));
    }
    drop(kept);
    std::process::exit(99)
}

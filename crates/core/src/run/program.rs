//! The program that is to run: found before anything waits, or told why it cannot be.

use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::process::{find_on_path, is_executable};
use std::io::Read;
use std::path::Path;
use thiserror::Error;

/// More of a script's first line the kernel does not read.
const LONGEST_FIRST_LINE: u64 = 256;

/// Why a program cannot be run.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum NoProgram {
    /// It is a file that cannot be run.
    #[error("{program} is not executable")]
    NotExecutable {
        /// As it was given.
        program: String,
        /// What to write instead.
        instead: String,
    },
    /// It is a directory.
    #[error("{program} is a directory")]
    Directory {
        /// As it was given.
        program: String,
    },
    /// There is no such file.
    #[error("{program} does not exist")]
    NoFile {
        /// As it was given.
        program: String,
        /// Where it was looked for.
        folder: String,
    },
    /// It is in this directory, which PATH does not have.
    #[error("{program} is not on PATH, but in this directory")]
    OnlyHere {
        /// As it was given.
        program: String,
        /// What to write instead.
        instead: String,
    },
    /// A program and its arguments stand in one word.
    #[error("there is no program called \"{program}\"")]
    Quoted {
        /// As it was given.
        program: String,
    },
    /// What its first line names is not there.
    #[error("{program} begins with #!{interpreter}, which does not exist")]
    NoInterpreter {
        /// As it was given.
        program: String,
        /// What its first line names.
        interpreter: String,
        /// What to do about it.
        hint: String,
    },
    /// PATH does not have it.
    #[error("{program} is not a program that can be run")]
    NotOnPath {
        /// As it was given.
        program: String,
    },
    /// There is no PATH to look for it.
    #[error("{program} cannot be looked for: PATH is not set in this job")]
    NoPath {
        /// As it was given.
        program: String,
    },
}

impl Hinted for NoProgram {
    fn hint(&self) -> Option<Hint> {
        match self {
            NoProgram::NotExecutable { program, instead } => {
                Some(hint!(format!("chmod +x {program}, or {instead}")))
            }
            NoProgram::Directory { .. } => Some(hint!("give the program in it")),
            NoProgram::NoFile { folder, .. } => Some(hint!(format!("a path is taken from {folder}"))),
            NoProgram::OnlyHere { instead, .. } => Some(hint!(format!("write {instead}"))),
            NoProgram::Quoted { program } => Some(hint!(format!("write it without quotes: -- {program}"))),
            NoProgram::NoInterpreter { hint, .. } => Some(hint!(hint.clone())),
            NoProgram::NotOnPath { .. } => Some(hint!("give its path, or put it on PATH")),
            NoProgram::NoPath { .. } => {
                Some(hint!("give its whole path, or write `getenv = PATH` into the submit description"))
            }
        }
    }
}

/// Looks for a program as a shell in `folder` would.
pub fn must_exist(program: &str, folder: &Path, path: Option<&str>) -> Result<(), NoProgram> {
    let file = folder.join(program);
    let first = program.split_whitespace().next().unwrap_or_default();
    // `"python train.py"` in quotes is one word, and the name of no program.
    if first != program && !file.exists() && must_exist(first, folder, path).is_ok() {
        return Err(NoProgram::Quoted { program: program.to_owned() });
    }
    let program = program.to_owned();
    if program.contains('/') {
        return match file.metadata() {
            _ if is_executable(&file) => can_be_interpreted(program, &file),
            Ok(meta) if meta.is_dir() => Err(NoProgram::Directory { program }),
            Ok(_) => Err(NoProgram::NotExecutable { instead: interpreter(&program), program }),
            Err(_) => Err(NoProgram::NoFile { program, folder: folder.display().to_string() }),
        };
    }
    if let Some(found) = find_on_path(&program, path) {
        return can_be_interpreted(program, &found);
    }
    match path {
        _ if file.is_file() => {
            let instead = match is_executable(&file) {
                true => format!("./{program}"),
                false => interpreter(&program).trim_start_matches("write ").to_owned(),
            };
            Err(NoProgram::OnlyHere { program, instead })
        }
        // HTCondor gives some jobs none.
        None => Err(NoProgram::NoPath { program }),
        Some(_) => Err(NoProgram::NotOnPath { program }),
    }
}

/// Looks whether what a script begins with is there: of `#!/no/such/python3` the kernel says of the *script* that it
/// does not exist.
fn can_be_interpreted(program: String, file: &Path) -> Result<(), NoProgram> {
    let mut begin = Vec::new();
    let read =
        std::fs::File::open(file).and_then(|file| file.take(LONGEST_FIRST_LINE).read_to_end(&mut begin));
    let Some(line) = read.ok().and_then(|_| begin.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next())
    else {
        return Ok(());
    };
    let line = String::from_utf8_lossy(line);
    let interpreter = line.trim_matches([' ', '\t']).split([' ', '\t']).next().unwrap_or_default().to_owned();
    if !interpreter.starts_with('/') || Path::new(&interpreter).exists() {
        return Ok(());
    }
    let hint = match interpreter.strip_suffix('\r') {
        Some(_) => format!("its lines end as on Windows: sed -i 's/\\r$//' {program}"),
        None => format!("correct its first line, or {}", self::interpreter(&program)),
    };
    Err(NoProgram::NoInterpreter { program, interpreter, hint })
}

/// Who runs a script that cannot run by itself.
fn interpreter(script: &str) -> String {
    let extension = Path::new(script).extension().and_then(|extension| extension.to_str());
    match extension {
        Some("py") => format!("write python {script}"),
        Some("sh") => format!("write sh {script}"),
        _ => format!("write the program that runs it before it: python {script}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_cannot_run_says_why() {
        let folder = std::env::temp_dir().join(format!("programs-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        for (name, mode) in [("x.py", 0o644), ("run.sh", 0o644), ("tool", 0o755), ("data", 0o644)] {
            std::fs::write(folder.join(name), "").unwrap();
            std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        let why = |program: &str, path| must_exist(program, &folder, path).map_err(|why| hint::in_full(&why));
        let says = |program: &str, expected: &str| {
            assert_eq!(why(program, Some("/nowhere")), Err(expected.to_owned()))
        };
        assert_eq!(why("./tool", None), Ok(()));
        assert_eq!(why("tool", folder.to_str()), Ok(()));
        says("./x.py", "./x.py is not executable; hint: chmod +x ./x.py, or write python ./x.py");
        says("./run.sh", "./run.sh is not executable; hint: chmod +x ./run.sh, or write sh ./run.sh");
        says("./bin", "./bin is a directory; hint: give the program in it");
        says("x.py", "x.py is not on PATH, but in this directory; hint: write python x.py");
        says("tool", "tool is not on PATH, but in this directory; hint: write ./tool");
        says("pyhton", "pyhton is not a program that can be run; hint: give its path, or put it on PATH");
        assert!(
            why("./data", None).unwrap_err().contains("the program that runs it before it: python ./data")
        );
        assert!(
            why("./none", None)
                .unwrap_err()
                .starts_with("./none does not exist; hint: a path is taken from /")
        );
        for (name, text) in [
            ("old.py", "#!/no/such/python3 -u\n"),
            ("dos.sh", "#!/bin/sh\r\necho\r\n"),
            ("fine.sh", "#! /bin/sh\n"),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
            std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        }
        assert_eq!(why("./fine.sh", None), Ok(()));
        says(
            "./old.py",
            "./old.py begins with #!/no/such/python3, which does not exist; hint: correct its first line, or write python ./old.py",
        );
        says(
            "./dos.sh",
            "./dos.sh begins with #!/bin/sh\r, which does not exist; hint: its lines end as on Windows: sed -i 's/\\r$//' ./dos.sh",
        );
        assert!(why("old.py", folder.to_str()).is_err(), "on PATH");
        says(
            "./tool --steps 3",
            "there is no program called \"./tool --steps 3\"; hint: write it without quotes: -- ./tool --steps 3",
        );
        says(
            "no such thing",
            "no such thing is not a program that can be run; hint: give its path, or put it on PATH",
        );
        assert!(why("pyhton", None).unwrap_err().contains("PATH is not set"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

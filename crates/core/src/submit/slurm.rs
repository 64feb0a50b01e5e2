//! A batch script for Slurm, and what Slurm says of a job afterwards.

use super::{Work, shell_line};

/// What is asked of Slurm; everything as `sbatch` takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Long options and their values, in the order in which they are to stand: `("nodes", "2")`.
    pub options: Vec<(&'static str, String)>,
    /// More options, as the user wrote them.
    pub more: Vec<String>,
}

/// The script. `sbatch` reads the `#SBATCH` lines as words of shell.
pub fn script(request: &Request, work: &Work) -> String {
    let mut script = "#!/bin/bash\n".to_owned();
    for (option, value) in &request.options {
        script.push_str(&format!("#SBATCH --{option}={}\n", directive_word(value)));
    }
    for words in options_of(&request.more) {
        let words: Vec<String> = words.iter().map(|word| directive_word(word)).collect();
        script.push_str(&format!("#SBATCH {}\n", words.join(" ")));
    }
    script.push_str("\nset -e\n");
    if let Some(setup) = &work.setup {
        script.push_str(&format!("\n# environment {}, from {}\n", setup.name, setup.origin));
        for line in &setup.lines {
            script.push_str(line.trim_end());
            script.push('\n');
        }
    }
    script.push_str("\n# One member a task: rallypoint starts the step, and ends it.\n");
    // In the shell's place, signals that Slurm sends to the batch script reach it.
    script.push_str(&format!("exec {}\n", shell_line(&work.command)));
    if !work.made_by.is_empty() {
        script.push_str(&format!("\n# made by: {}\n", one_line(&shell_line(&work.made_by))));
    }
    script
}

/// Options with their values: `-x n1 --qos=shared` is two of them.
fn options_of(words: &[String]) -> Vec<Vec<String>> {
    let mut options: Vec<Vec<String>> = Vec::new();
    for word in words {
        match options.last_mut() {
            Some(option) if !word.starts_with('-') => option.push(word.clone()),
            _ => options.push(vec![word.clone()]),
        }
    }
    options
}

/// `sbatch` knows double quotes and backslashes in its lines, and no `$`.
fn directive_word(word: &str) -> String {
    let word = one_line(word);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/%+@[]^*~!&|()".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word;
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A line break would end the comment that it stands in.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// A job as `scontrol show job --oneliner` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStatus {
    pub id: String,
    /// `PENDING`, `RUNNING`, `COMPLETED`, ...
    pub state: String,
    /// Why it waits, or how it ended: `Resources`, `NonZeroExitCode`.
    pub reason: String,
    pub nodes: String,
    pub exit: (u8, u8),
    /// Where it writes.
    pub log: Option<String>,
}

impl JobStatus {
    /// One line a job, `Name=value` with blanks between: `JobId=7 JobName=train ... JobState=RUNNING ...`
    pub fn parse(line: &str) -> Option<JobStatus> {
        let field = |name: &str| {
            line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        let exit = field("ExitCode")?;
        let (code, signal) = exit.split_once(':')?;
        Some(JobStatus {
            id: field("JobId")?,
            state: field("JobState")?,
            reason: field("Reason").unwrap_or_default(),
            nodes: field("NodeList").filter(|nodes| nodes != "(null)").unwrap_or_default(),
            // 256 and more are Slurm's own; what matters is that it is not 0.
            exit: (code.parse::<u32>().ok()?.min(255) as u8, signal.parse::<u32>().ok()?.min(127) as u8),
            log: field("StdOut").filter(|log| log.starts_with('/')),
        })
    }

    /// True if nothing more will happen to it, unless somebody requeues it.
    pub fn is_over(&self) -> bool {
        // COMPLETING is the way there; a requeued job is PENDING or REQUEUED again.
        const OVER: [&str; 10] = [
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "REVOKED",
            "TIMEOUT",
        ];
        OVER.contains(&self.state.as_str())
    }

    /// 0 for success alone: the job's own code, 128 and more for a signal, 1 where Slurm knows neither.
    pub fn code(&self) -> u8 {
        match (self.state.as_str(), self.exit) {
            ("COMPLETED", _) => 0,
            (_, (0, 0)) => 1,
            (_, (0, signal)) => 128 + signal,
            (_, (code, _)) => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Setup;
    use super::*;

    fn words(text: &str) -> Vec<String> {
        super::super::shell_words(text).unwrap()
    }

    #[test]
    fn a_script_that_one_would_write() {
        let request = Request {
            options: vec![
                ("job-name", "train".to_owned()),
                ("nodes", "2".to_owned()),
                ("time", "1:00:00".to_owned()),
            ],
            more: words("--qos=shared -x n1,n2 --comment 'two \"big\" words'"),
        };
        let work = Work {
            setup: Some(Setup {
                name: "tf17".to_owned(),
                lines: vec!["module load tensorflow/1.7".to_owned()],
                origin: "rallypoint.toml".to_owned(),
            }),
            command: words("rallypoint run --ps 1 -- python train.py --note 'a b'"),
            made_by: words("rallypoint submit slurm -N 2 -- python train.py"),
        };
        insta::assert_snapshot!(script(&request, &work), @r##"
        #!/bin/bash
        #SBATCH --job-name=train
        #SBATCH --nodes=2
        #SBATCH --time=1:00:00
        #SBATCH --qos=shared
        #SBATCH -x n1,n2
        #SBATCH --comment "two \"big\" words"

        set -e

        # environment tf17, from rallypoint.toml
        module load tensorflow/1.7

        # One member a task: rallypoint starts the step, and ends it.
        exec rallypoint run --ps 1 -- python train.py --note 'a b'

        # made by: rallypoint submit slurm -N 2 -- python train.py
        "##);
    }

    #[test]
    fn no_value_ends_its_line() {
        let request = Request {
            options: vec![("job-name", "a\n#SBATCH --uid=0".to_owned())],
            more: words("--comment='x\ny'"),
        };
        let work = Work { made_by: vec!["x\nrm -rf y".to_owned()], command: words("a"), setup: None };
        let script = script(&request, &work);
        assert!(script.contains("#SBATCH --job-name=\"a #SBATCH --uid=0\"\n"), "{script}");
        assert!(script.contains("#SBATCH \"--comment=x y\"\n"), "{script}");
        assert!(script.lines().all(|line| !line.starts_with("rm") && !line.starts_with('y')), "{script}");
    }

    #[test]
    fn what_slurm_says_of_a_job() {
        let line = "JobId=7 JobName=train UserId=me(1000) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 ExitCode=3:0 NodeList=n[01-02] BatchHost=n01 StdOut=/home/me/slurm-7.out Power=";
        let status = JobStatus::parse(line).unwrap();
        assert_eq!((status.id.as_str(), status.state.as_str(), status.code()), ("7", "FAILED", 3));
        assert_eq!(
            (status.nodes.as_str(), status.log.as_deref()),
            ("n[01-02]", Some("/home/me/slurm-7.out"))
        );
        assert!(status.is_over());
        let code = |state: &str, exit: &str| {
            let line = format!("JobId=1 JobState={state} ExitCode={exit}");
            JobStatus::parse(&line).map(|status| (status.is_over(), status.code()))
        };
        assert_eq!(code("COMPLETED", "0:0"), Some((true, 0)));
        assert_eq!(code("CANCELLED", "0:15"), Some((true, 143)));
        assert_eq!(code("TIMEOUT", "0:0"), Some((true, 1)));
        assert_eq!(code("RUNNING", "0:0"), Some((false, 1)));
        assert_eq!(code("NODE_FAIL", "300:0"), Some((true, 255)));
        for rubbish in ["", "JobId=1", "JobId=1 JobState=X ExitCode=x", "JobId=1 JobState=X ExitCode=a:b"] {
            assert_eq!(JobStatus::parse(rubbish), None, "{rubbish}");
        }
    }
}

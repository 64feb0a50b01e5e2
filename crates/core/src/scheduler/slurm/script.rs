//! A batch script for Slurm.

use crate::scheduler::submit::Work;
use crate::shell;

/// What is asked of Slurm; everything as `sbatch` takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// Long options and their values, in the order in which they are to stand: `("nodes", "2")`.
    pub(super) options: Vec<(&'static str, String)>,
    /// More options, as the user wrote them.
    pub(super) more: Vec<String>,
}

/// The script. `sbatch` reads the `#SBATCH` lines as words of shell.
pub(super) fn script(request: &Request, work: &Work) -> String {
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
    script.push_str("\n# One member per task: rallypoint starts the step, and ends it.\n");
    // In the shell's place, signals that Slurm sends to the batch script reach it.
    script.push_str(&format!("exec {}\n", shell::line(&work.command)));
    if !work.made_by.is_empty() {
        script.push_str(&format!("\n# made by: {}\n", shell::one_line(&shell::line(&work.made_by))));
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
    let word = shell::one_line(word);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/%+@[]^*~!&|()".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word;
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::submit::Setup;

    fn words(text: &str) -> Vec<String> {
        crate::shell::words(text).unwrap()
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

        # One member per task: rallypoint starts the step, and ends it.
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
}

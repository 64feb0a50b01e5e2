//! Scripts for a batch system, as a person would write them: one file a scheduler, each a pure function.

pub mod htcondor;
pub mod slurm;
pub mod user_log;

use crate::framework::shell_quote;

/// What a job does once it has its allocation, whoever gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// The environment to set up first.
    pub setup: Option<Setup>,
    /// `rallypoint run ... -- python train.py`, word by word.
    pub command: Vec<String>,
    /// The command line that made this script, word by word.
    pub made_by: Vec<String>,
}

/// A named environment: `[env.tf17] setup = ["module load tensorflow/1.7"]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    pub name: String,
    /// Lines of shell.
    pub lines: Vec<String>,
    /// The file it stands in.
    pub origin: String,
}

/// Words as one line of shell.
pub fn shell_line(words: &[String]) -> String {
    words.iter().map(|word| shell_quote(word)).collect::<Vec<_>>().join(" ")
}

/// Splits a line as a shell does, without expanding anything: `--qos=shared --comment "two words"`.
/// `None` if a quote is not closed.
pub fn shell_words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        end if end == c => break,
                        '\\' if c == '"' => match chars.next()? {
                            escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        inside => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next()?),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        let cases: [(&str, &[&str]); 7] = [
            ("", &[]),
            ("--qos=shared  -x n1", &["--qos=shared", "-x", "n1"]),
            ("--comment='two words'", &["--comment=two words"]),
            (r#"a "b \"c\" \n" d"#, &["a", r#"b "c" \n"#, "d"]),
            (r"a\ b ''", &["a b", ""]),
            ("\t a \n", &["a"]),
            ("'it'\\''s'", &["it's"]),
        ];
        for (line, words) in cases {
            assert_eq!(shell_words(line).unwrap(), words, "{line:?}");
        }
        for open in ["'a", "\"a", "a\\", "\"a\\"] {
            assert_eq!(shell_words(open), None, "{open:?}");
        }
    }

    #[test]
    fn a_line_comes_back_as_its_words() {
        let words: Vec<String> =
            ["python", "-c", "print('a b')", "$HOME", ""].iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(shell_words(&shell_line(&words)).unwrap(), words);
    }
}

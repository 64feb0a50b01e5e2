//! Words of a POSIX shell: quoted, joined, split.

/// Quotes for a POSIX shell; plain words stay as they are.
pub fn quote(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,@%+=".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

/// A text without line breaks: in a script they would end a comment, or begin another command.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Words as one line of shell.
pub(crate) fn line(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

/// Splits a line as a shell does, without expanding anything: `--qos=shared --comment "two words"`.
/// `None` if a quote is not closed.
pub(crate) fn words(line: &str) -> Option<Vec<String>> {
    shlex::split(line)
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
        for (text, expected) in cases {
            assert_eq!(words(text).unwrap(), expected, "{text:?}");
        }
        for open in ["'a", "\"a", "a\\", "\"a\\"] {
            assert_eq!(words(open), None, "{open:?}");
        }
    }

    #[test]
    fn a_line_comes_back_as_its_words() {
        let given: Vec<String> =
            ["python", "-c", "print('a b')", "$HOME", ""].iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(words(&line(&given)).unwrap(), given);
    }
}

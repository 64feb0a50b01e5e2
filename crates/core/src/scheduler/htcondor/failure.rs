//! Why a job has failed, from what its agents have written to their files.

/// How many of a file's last lines are shown where nobody has said why.
const LAST: usize = 10;

/// What one agent's stderr tells about the end of the job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// The first failure, in the agent's words: the leader has all of it, the others its first line.
    Failure(Vec<String>),
    /// An error of the agent itself, with its hint.
    Error(Vec<String>),
    /// Nothing of the kind: its last lines.
    Last(Vec<String>),
}

/// Reads an agent's stderr. Only the last attempt's counts.
pub(super) fn words_of(text: &str) -> Words {
    let lines: Vec<&str> = text.lines().collect();
    let own = |line: &str| line.strip_prefix("rallypoint: ").map(str::to_owned);
    if let Some(at) = lines.iter().rposition(|line| line.starts_with("rallypoint: first failure: ")) {
        let more = lines[at + 1..].iter().take_while(|line| line.starts_with("rallypoint:   "));
        return Words::Failure(lines[at..=at].iter().chain(more).filter_map(|line| own(line)).collect());
    }
    if let Some(at) = lines.iter().rposition(|line| line.starts_with("error: ")) {
        let hint = lines[at + 1..].iter().take_while(|line| line.starts_with("hint: "));
        return Words::Error(lines[at..=at].iter().chain(hint).map(|line| (*line).to_owned()).collect());
    }
    let last = lines.len().saturating_sub(LAST);
    Words::Last(lines[last..].iter().map(|line| (*line).to_owned()).collect())
}

/// The best word of several agents, each with its exit code where it ended: the fullest account of the first failure,
/// else an error, else the last lines of one that has failed. The number is the agent's.
pub(super) fn best(mut all: Vec<(u32, Option<u8>, Words)>) -> Option<(u32, Words)> {
    all.retain(|(_, code, told)| match told {
        Words::Failure(_) | Words::Error(_) => true,
        Words::Last(lines) => *code != Some(0) && !lines.is_empty(),
    });
    let worth = |told: &Words| match told {
        Words::Failure(lines) => (2, lines.len()),
        Words::Error(_) => (1, 0),
        Words::Last(_) => (0, 0),
    };
    // The first of equals.
    all.sort_by_key(|(number, _, told)| (std::cmp::Reverse(worth(told)), *number));
    all.into_iter().next().map(|(number, _, told)| (number, told))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn the_fullest_account_of_the_first_failure_is_found() {
        let leader = "rallypoint: 2 members on 2 hosts\n[worker 1] Traceback\nrallypoint: first failure: old: exit code 1\n\
            rallypoint: first failure: worker 1 on n2, pid 7: exit code 7\nrallypoint:   its last lines on stderr:\n\
            rallypoint:   | Traceback\nrallypoint: bye\n";
        let follower =
            "rallypoint: first failure: worker 1 on n2, pid 7: exit code 7; see the leader's lines\n";
        let full = Words::Failure(words(&[
            "first failure: worker 1 on n2, pid 7: exit code 7",
            "  its last lines on stderr:",
            "  | Traceback",
        ]));
        assert_eq!(words_of(leader), full);
        let all = vec![
            (0, Some(7), words_of(follower)),
            (1, Some(7), words_of(leader)),
            (2, None, words_of("killed\n")),
        ];
        assert_eq!(best(all), Some((1, full)));
    }

    #[test]
    fn where_no_member_failed_the_error_is_told_or_the_last_lines() {
        let refused = "rallypoint: meeting: ...\nerror: after 5 s 1 of 2 members have come\nhint: longer\n";
        let error = Words::Error(words(&["error: after 5 s 1 of 2 members have come", "hint: longer"]));
        assert_eq!(words_of(refused), error);
        assert_eq!(
            best(vec![(0, Some(1), words_of("a\nb\n")), (1, Some(193), words_of(refused))]),
            Some((1, error))
        );
        let last = Words::Last(words(&["a", "b"]));
        assert_eq!(
            best(vec![(0, Some(0), words_of("fine\n")), (1, Some(1), words_of("a\nb\n"))]),
            Some((1, last))
        );
        assert_eq!(best(vec![(0, Some(0), words_of("fine\n")), (1, Some(3), words_of(""))]), None);
    }
}

//! Host lists against what two versions of Slurm printed for the same input.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use rallypoint::hint;
use rallypoint::hostlist::{HostList, Order};

/// `input TAB output TAB rc=0 TAB stderr`; long outputs are shortened to `first,...,last (count)`.
struct Case {
    input: String,
    output: String,
    refused: bool,
}

fn cases(version: &str) -> Vec<Case> {
    let path = format!("{}/../../tests/fixtures/hostlist_cases_{version}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            Case {
                input: fields[0].replace("\\t", "\t"),
                output: fields[1].to_owned(),
                refused: fields[3].contains("nvalid hostlist"),
            }
        })
        .collect()
}

fn shortened(names: &[String]) -> String {
    match names {
        [first, .., last] if names.len() > 100 => format!("{first},...,{last} ({})", names.len()),
        _ => names.join(","),
    }
}

#[test]
fn expands_as_the_newer_slurm_does() {
    let mut seen = 0;
    for case in cases("24.11").iter().filter(|case| !case.input.starts_with("(no argument")) {
        if case.input.starts_with("hostlist") {
            continue;
        }
        let parsed: Result<HostList, _> = case.input.parse();
        if case.refused {
            // Slurm's own limit on a range is lower than ours.
            let too_long = case.input == "n[1-100000]" || case.input == "n[1-1000000]";
            assert_eq!(parsed.is_err(), !too_long, "{:?}", case.input);
        } else {
            let names: Vec<String> =
                parsed.unwrap_or_else(|e| panic!("{:?}: {e}", case.input)).names().collect();
            assert_eq!(shortened(&names), case.output, "{:?}", case.input);
        }
        seen += 1;
    }
    assert!(seen > 50, "only {seen} cases");
}

#[test]
fn the_older_slurm_differs_only_in_what_it_refuses() {
    let newer = cases("24.11");
    for (old, new) in cases("22.05").iter().zip(&newer) {
        assert_eq!(old.input, new.input);
        if !old.refused {
            assert_eq!(old.output, new.output, "{:?}", old.input);
        }
    }
}

#[test]
fn folds_as_slurm_does() {
    let mut seen = 0;
    for case in cases("24.11") {
        let (order, names) = match case.input.split_once(':') {
            Some(("hostlist", names)) => (Order::Kept, names),
            Some(("hostlistsorted", names)) => (Order::Sorted, names),
            _ => continue,
        };
        let folded = HostList::fold(names.split(','), order).unwrap();
        assert_eq!(folded.to_string(), case.output, "{}", case.input);
        seen += 1;
    }
    assert!(seen >= 16, "only {seen} cases");
}

#[test]
fn counts_without_expanding() {
    for (list, count) in
        [("", 0), (",", 0), ("n[1-1000000]", 1_000_000), ("a[1-2]b[1-3],c", 7), ("n[1,1]", 2)]
    {
        assert_eq!(list.parse::<HostList>().unwrap().count(), count, "{list}");
    }
}

#[test]
fn errors_show_the_place() {
    let message = |text: &str| hint::in_full(&text.parse::<HostList>().unwrap_err());
    insta::assert_snapshot!(message("n[1-"), @r"
    bad host list at character 2: this bracket is never closed
      n[1-
       ^^^
    ");
    insta::assert_snapshot!(message("m1,n[5-1]"), @r"
    bad host list at character 6: the range ends before it begins
      m1,n[5-1]
           ^^^; hint: write 1-5
    ");
    insta::assert_snapshot!(message("n[1,a-b,3]"), @r"
    bad host list at character 5: expected a number or a range such as 1-4
      n[1,a-b,3]
          ^^^
    ");
    insta::assert_snapshot!(message("n[1,]"), @r"
    bad host list at character 5: expected a number here, found nothing
      n[1,]
          ^
    ");
    insta::assert_snapshot!(message("n[1-100000000]"), @r"
    bad host list at character 1: 100000000 names; more than 4194304 are surely a mistake
      n[1-100000000]
      ^^^^^^^^^^^^^^
    ");
    insta::assert_snapshot!(message("n[99999999999999999999]"), @r"
    bad host list at character 3: a number may have 64 digits and be at most 18446744073709551615
      n[99999999999999999999]
        ^^^^^^^^^^^^^^^^^^^^
    ");
    let long = format!("{}[x]", "a,".repeat(500));
    assert!(message(&long).lines().all(|line| line.chars().count() < 120), "{}", message(&long));
}

#[test]
fn names_that_a_list_cannot_hold_are_refused() {
    for name in ["", "a,b", "a[1]", "a b", "a\n"] {
        assert!(HostList::fold([name], Order::Kept).is_err(), "{name:?}");
    }
}

/// The last bracket turns fastest, then the first: one that has a single number cannot be left out when it is printed.
#[test]
fn what_is_printed_keeps_the_order_of_the_names() {
    for (text, printed) in [
        ("rack[1-2]n[01-03]n[0]", "rack[1-2]n[01-03]n[0]"),
        ("rack[1-2]n[7]n[0]", "rack[1-2]n7n0"),
        ("a[1]b[1-2]c[1-2]", "a1b[1-2]c[1-2]"),
        ("a[1-2]b[01]", "a[1-2]b01"),
    ] {
        let list: HostList = text.parse().unwrap();
        assert_eq!(list.to_string(), printed);
        let again: HostList = printed.parse().unwrap();
        assert!(again.names().eq(list.names()), "{text}");
    }
}

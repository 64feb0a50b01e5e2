//! Everything that people read of a run, in one page.

use rallypoint::event::{RunEvent, samples};
use rallypoint::hint::Setting;
use rallypoint::outcome::OwnCode;
use rallypoint::supervise::guard::Watched;
use rallypoint_english::{ClosingRow, English, Weight, event_meaning, meaning, watched};
use std::fmt::Write;
use std::time::Duration;

fn page(english: English) -> String {
    let mut page = String::new();
    for event in samples::all() {
        let name = format!("{event:?}");
        let name = name.split([' ', '(']).next().unwrap_or_default().to_owned();
        _ = writeln!(page, "{name} [{:?}]", Weight::of(&event));
        if let RunEvent::Over(whole) = &event {
            for ClosingRow { member, host, end, .. } in whole.members.iter().map(ClosingRow::of) {
                _ = writeln!(page, "    {member} | {host} | {end}");
            }
        }
        for line in english.lines(&event) {
            _ = writeln!(page, "  {line}");
        }
    }
    page
}

#[test]
fn every_event_as_the_command_says_it() {
    insta::assert_snapshot!(page(English::of_the_command()));
}

#[test]
fn every_event_has_a_meaning() {
    for event in samples::all() {
        assert!(event_meaning(&event).is_some_and(|text| text.ends_with('.')), "{event:?}");
    }
}

#[test]
fn settings_are_spelled_as_the_front_end_does() {
    let python = |setting: Setting, value: Option<&str>| {
        format!("{}={}", setting.name().replace('-', "_"), value.unwrap_or_default())
    };
    let page = page(English::new(python));
    for setting in Setting::ALL {
        assert!(!page.contains(&setting.typed(None)), "{setting:?}: {page}");
    }
    assert!(page.contains("hint: stand_in=on with tensorflow=DIR, or until=first"), "{page}");
}

#[test]
fn exit_codes_and_guards() {
    let mut page = String::new();
    for own in OwnCode::ALL {
        _ = writeln!(page, "{}: {}", own.code(), meaning(own));
    }
    for end in [
        Watched::Ended(3),
        Watched::Killed { agent: 4711, signal: 9, left: 2 },
        Watched::Overdue { agent: 4711, limit: Duration::from_secs(105) },
    ] {
        _ = writeln!(page, "{}", watched(&end).unwrap_or_else(|| "nothing".to_owned()));
    }
    insta::assert_snapshot!(page);
}

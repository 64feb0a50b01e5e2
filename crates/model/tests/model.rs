//! The checker finds what it has to find. Large models are checked in release builds only: `make model`.

use rallypoint_model::{Case, Expect, Meeting, Variant, protocol, variants};

fn check(cases: Vec<Case>) {
    for case in cases {
        let checked = case.check();
        assert!(checked.is(case.expect), "{}: {:?} is expected, found {checked:#?}", case.name, case.expect);
    }
}

#[cfg(not(debug_assertions))]
#[test]
fn the_protocol_holds() {
    check(protocol());
}

#[test]
fn the_protocol_holds_with_few_faults() {
    check(protocol().into_iter().take(3).collect());
}

#[test]
fn every_variant_is_rejected() {
    check(variants());
}

#[cfg(not(debug_assertions))]
#[test]
fn what_the_protocol_does_not_hold_is_known() {
    check(rallypoint_model::findings());
}

/// What a variant breaks is broken by the rule that it lacks, and not by the bounds.
#[test]
fn without_a_variant_its_bounds_hold() {
    let whole = |case: Case| Case {
        meeting: Meeting { variant: Variant::True, ..case.meeting },
        expect: Expect::Holds,
        ..case
    };
    check(variants().into_iter().map(whole).collect());
}

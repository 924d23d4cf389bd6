//! What comes of a result that is too late: each setting, each place in the list, each way to be too late.

use super::*;
use crate::ledger::rules::AtEnd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    TimedOut,
    Superseded,
    /// It timed out first; then the user moved on.
    Both,
    /// It was accepted in time: elsewhere than at the end it is carried.
    Accepted,
}

/// Each place: the list, where the late result stands in it, and whether it is fed to the model now.
const PLACES: [(&str, usize, bool); 7] = [
    ("u1 c1(A)=R", 1, true),
    ("u1 c1(A)=R s", 1, true),
    ("u1 c1(A)=R u2", 1, false),
    ("u1 c1(A)=R a u2 a u3", 1, false),
    ("u1 c1(A)=R c2(B)=S", 1, true),
    ("u1 c2(B)=S c1(A)=R", 2, true),
    ("u1 c2(B)=S c1(A)=R a u2", 2, false),
];

const BOTH: [AtEnd; 2] = [AtEnd::Refuse, AtEnd::Substitute];

fn prepared(ended: Ended, list: &str, rules: &Rules) -> (Talk, u64) {
    let mut talk = Talk::new();
    talk.rules = rules.clone();
    talk.round_within(ask("u1").generation(1), "c1(A)", 10);
    if ended == Ended::Accepted {
        talk.round(ask("u1 c1(A)=R").generation(1), "");
    } else if ended != Ended::Superseded {
        talk.pass(10);
        talk.apply(&Event::Tick);
    }
    let moved = matches!(ended, Ended::Superseded | Ended::Both);
    if moved {
        let _ = talk.advance(Some(2));
    }
    let generation = if moved { 2 } else { 1 };
    if list.contains("c2") {
        talk.round(ask("u-other").generation(generation), "c2(B)");
    }
    (talk, generation)
}

#[test]
fn every_setting_in_every_place() {
    for ended in [Ended::TimedOut, Ended::Superseded, Ended::Both] {
        for (list, at, live) in PLACES {
            for late in BOTH {
                for superseded in BOTH {
                    for history in BOTH {
                        let rules = Rules { late, superseded, history, ..Rules::default() };
                        one(ended, (list, at, live), &rules);
                    }
                }
            }
        }
    }
}

fn one(ended: Ended, (list, at, live): (&str, usize, bool), rules: &Rules) {
    let Rules { late, superseded, history, .. } = *rules;
    let what = format!("{ended:?} {list}: {late:?} {superseded:?} {history:?}");
    let (mut talk, generation) = prepared(ended, list, rules);
    let (code, at_end, notice) = match ended {
        Ended::TimedOut => (Code::Late, late, Notice::Timeout),
        // The notice goes by how the call ended, and stays the same when the user moves on.
        Ended::Both => (Code::Stale, superseded, Notice::Timeout),
        _ => (Code::Stale, superseded, Notice::Superseded),
    };
    let setting = if live { at_end } else { history };
    let before = talk.call("c1");
    let asked = ask(list).generation(generation);
    if setting == AtEnd::Refuse {
        assert_eq!(talk.refused(asked), [code], "{what}");
        if list.contains("c2") {
            assert_eq!(talk.call("c2"), CallState::Open, "{what}: all or none");
        }
    } else {
        let (id, outcome) = talk.ask(asked.clone());
        let Outcome::Admitted(admitted) = outcome else { panic!("{what}: {outcome:?}") };
        assert_eq!(replaced(&admitted), [(at, notice)], "{what}");
        assert_eq!(notes(&admitted), [Code::Substituted], "{what}");
        if list.contains("c2") {
            assert_eq!(talk.call("c2"), accepted("S"), "{what}");
        }
        talk.close(id, Ending::UpstreamFailed);
        let again = talk.admitted(asked);
        assert_eq!(replaced(&again), [(at, notice)], "{what}: on every request");
    }
    assert_eq!(talk.call("c1"), before, "{what}: how it ended is final");
}

#[test]
fn what_is_carried_is_never_replaced() {
    for (list, _, _) in PLACES.into_iter().filter(|(_, _, live)| !live) {
        for history in BOTH {
            let rules = Rules { history, ..Rules::default() };
            let (mut talk, _) = prepared(Ended::Accepted, list, &rules);
            talk.pass(60_000);
            let _ = talk.advance(Some(2));
            let c2 = if list.contains("c2") { vec![(1, Notice::Superseded)] } else { Vec::new() };
            let (_, outcome) = talk.ask(ask(list).generation(2));
            match outcome {
                Outcome::Admitted(admitted) => assert_eq!(replaced(&admitted), c2, "{list}"),
                other => assert_eq!((codes(&other), c2.len()), (vec![Code::Stale], 1), "{list}"),
            }
        }
    }
}

#[test]
fn nothing_stands_beside_a_notice_where_nothing_else_may() {
    for ended in [Ended::TimedOut, Ended::Superseded, Ended::Both] {
        for (list, at, _) in PLACES {
            for setting in BOTH {
                let rules = Rules {
                    late: setting,
                    superseded: setting,
                    history: setting,
                    ..Rules::default()
                };
                let notice = match ended {
                    Ended::Superseded => Notice::Superseded,
                    _ => Notice::Timeout,
                };
                for (result, wanted) in [("=!+", &[(at, notice)][..]), ("=!", &[])] {
                    let list = list.replace("=R", result);
                    let (mut talk, generation) = prepared(ended, &list, &rules);
                    let admitted = talk.admitted(ask(&list).generation(generation));
                    assert_eq!(replaced(&admitted), wanted, "{ended:?} {list}: {setting:?}");
                }
            }
        }
    }
}

//! The control API: decide, start, advance.

use super::*;

fn decide(talk: &mut Talk, generation: u64, call: &str, change: impl Fn(&mut Decide)) -> Outcome {
    let (call, result) = call.split_once('=').unwrap();
    let (id, _, _) = call_words(call);
    let mut event = Decide {
        exchange: talk.id(),
        generation,
        id: id.into(),
        name: None,
        result: digest(result),
        closing: result == "!",
        echoes: Vec::new(),
        attempt: None,
        idempotency: None,
    };
    change(&mut event);
    talk.apply(&Event::Decide(event))
}

fn start(talk: &mut Talk, generation: u64, id: &str) -> Outcome {
    let exchange = talk.id();
    talk.apply(&Event::Start(Start { exchange, generation, id: id.into() }))
}

fn yes() -> Outcome {
    Outcome::Accepted { tool: "get".into() }
}

fn called() -> Talk {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(41), "c1(A) c2(B)");
    talk
}

#[test]
fn a_result_is_decided_at_the_moment_it_comes_back() {
    let mut talk = called();
    assert_eq!(decide(&mut talk, 41, "c1=R", |_| ()), yes());
    assert_eq!((talk.call("c1"), talk.call("c2")), (accepted("R"), CallState::Open));
    assert_eq!(talk.refused(ask("u1 c1(A)=S c2(B)=R").generation(41)), [Code::Conflict]);
    talk.up(ask("u1 c1(A)=R c2(B)=R").generation(41));
}

#[test]
fn a_continuation_of_which_all_was_decided_before_passes() {
    let mut talk = called();
    decide(&mut talk, 41, "c1=R", |_| ());
    decide(&mut talk, 41, "c2=R", |_| ());
    let id = talk.up(ask("u1 c1(A)=R c2(B)=R").generation(41));
    talk.answer(id, "");
    assert_eq!(talk.refused(ask("u1 c1(A)=R c2(B)=R").generation(41)), [Code::Duplicate]);
}

#[test]
fn the_same_result_twice_is_a_duplicate_unless_the_key_is_the_same() {
    let mut talk = called();
    let key = |decide: &mut Decide| decide.idempotency = Some(digest("k"));
    assert_eq!(decide(&mut talk, 41, "c1=R", key), yes());
    assert_eq!(decide(&mut talk, 41, "c1=R", key), yes());
    assert_eq!(codes(&decide(&mut talk, 41, "c1=R", |_| ())), [Code::Duplicate]);
    assert_eq!(codes(&decide(&mut talk, 41, "c1=S", key)), [Code::Conflict]);
    talk.advance(None);
    assert_eq!(decide(&mut talk, 41, "c1=R", key), yes(), "the first answer again");
}

#[test]
fn results_are_refused_in_the_article_s_order() {
    let mut talk = called();
    assert_eq!(codes(&decide(&mut talk, 41, "cX=R", |_| ())), [Code::Unmatched]);
    assert_eq!(codes(&decide(&mut talk, 40, "c1=R", |_| ())), [Code::Stale]);
    assert_eq!(codes(&decide(&mut talk, 42, "c1=R", |_| ())), [Code::Stale]);
    let renamed = |decide: &mut Decide| decide.name = Some("put".into());
    assert_eq!(codes(&decide(&mut talk, 41, "c1=R", renamed)), [Code::Mismatch]);
    let unstarted = |decide: &mut Decide| decide.attempt = Some(1);
    assert_eq!(codes(&decide(&mut talk, 41, "c1=R", unstarted)), [Code::Mismatch]);
    talk.advance(None);
    assert_eq!(codes(&decide(&mut talk, 41, "c1=R", |_| ())), [Code::Stale]);
    assert_eq!(
        talk.recorded(),
        [Code::Unmatched, Code::Stale, Code::Stale, Code::Mismatch, Code::Mismatch, Code::Stale]
    );
}

#[test]
fn a_timed_out_call_takes_a_closing_but_no_result() {
    let mut talk = Talk::new();
    talk.round_within(ask("u1"), "c1(A)", 10);
    talk.pass(10);
    assert_eq!(codes(&decide(&mut talk, 1, "c1=R", |_| ())), [Code::Late]);
    assert_eq!(decide(&mut talk, 1, "c1=!", |_| ()), yes());
    assert_eq!(talk.call("c1"), CallState::TimedOut);
    talk.up(ask("u1 c1(A)=!"));
}

#[test]
fn an_id_that_two_generations_used_is_told_apart() {
    let mut talk = Talk::new();
    talk.round(ask("u1").generation(41), "f:0(A)");
    talk.round(ask("u2").generation(42), "f:0(B)");
    assert_eq!(codes(&decide(&mut talk, 41, "f:0=R", |_| ())), [Code::Stale]);
    assert_eq!(talk.call("f:0"), CallState::Open);
    assert_eq!(decide(&mut talk, 42, "f:0=R", |_| ()), yes());
    assert_eq!(codes(&start(&mut talk, 41, "f:0")), [Code::Stale]);
}

#[test]
fn starting_numbers_attempts_and_the_first_result_of_any_wins() {
    let mut talk = called();
    for number in 1..=2 {
        let Outcome::Started { attempt, operation, .. } = start(&mut talk, 41, "c1") else {
            panic!()
        };
        assert_eq!((attempt, operation), (number, None));
    }
    assert_eq!(
        codes(&decide(&mut talk, 41, "c1=R", |one| one.attempt = Some(3))),
        [Code::Mismatch]
    );
    assert_eq!(decide(&mut talk, 41, "c1=R", |one| one.attempt = Some(1)), yes());
    assert_eq!(
        codes(&decide(&mut talk, 41, "c1=S", |one| one.attempt = Some(2))),
        [Code::Conflict]
    );
    assert_eq!(codes(&start(&mut talk, 41, "c1")), [Code::Duplicate]);
}

#[test]
fn a_tool_starts_only_for_an_open_current_call_in_time() {
    let mut talk = Talk::new();
    talk.round_within(ask("u1"), "c1(A)", 10);
    let Outcome::Started { deadline, .. } = start(&mut talk, 1, "c1") else { panic!() };
    assert_eq!(deadline, Some(talk.now.after(Millis(10))));
    assert_eq!(codes(&start(&mut talk, 1, "cX")), [Code::Unmatched]);
    assert_eq!(codes(&start(&mut talk, 2, "c1")), [Code::Stale]);
    let mut moved = talk.clone();
    moved.advance(None);
    assert_eq!(codes(&start(&mut moved, 1, "c1")), [Code::Stale]);
    talk.pass(10);
    assert_eq!(codes(&start(&mut talk, 1, "c1")), [Code::Late]);
}

#[test]
fn a_tool_is_told_the_end_of_its_task_where_that_comes_first() {
    for (call_takes, told) in [(5, 1_005), (90, 1_060)] {
        let mut talk = Talk::with(|rules| rules.task_deadline = Some(Millis(60)));
        talk.round_within(ask("u1").generation(1), "c1(A)", call_takes);
        let Outcome::Started { deadline, .. } = start(&mut talk, 1, "c1") else { panic!() };
        assert_eq!(deadline, Some(Millis(told)));
        talk.now = Millis(told);
        assert_eq!(codes(&start(&mut talk, 1, "c1")), [Code::Late]);
    }
}

#[test]
fn an_advance_repeated_does_not_advance_again() {
    let mut talk = called();
    let exchange = talk.id();
    let event = Advance { exchange, generation: None, idempotency: Some(digest("k")) };
    let first = talk.apply(&Event::Advance(event.clone()));
    let Outcome::Advanced { generation: 42, superseded, .. } = &first else { panic!() };
    assert_eq!(superseded.len(), 2);
    talk.advance(None);
    assert_eq!(talk.apply(&Event::Advance(event.clone())), first, "a lost reply, long after");
    let exchange = talk.id();
    let by_key = Advance { exchange, ..event };
    assert_eq!(talk.apply(&Event::Advance(by_key)), first, "the same key");
    assert_eq!(talk.admitted(ask("u2").generation(43)).generation, 43);
}

#[test]
fn generations_end_where_json_numbers_stop_being_exact() {
    const LAST: u64 = (1 << 53) - 1;
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    assert_eq!(codes(&talk.advance(Some(LAST + 1))), [Code::GenerationInvalid]);
    assert!(matches!(talk.advance(Some(LAST)), Outcome::Advanced { generation: LAST, .. }));
    assert!(matches!(talk.advance(Some(LAST)), Outcome::Advanced { generation: LAST, .. }));
    assert_eq!(codes(&talk.advance(None)), [Code::GenerationInvalid]);
    assert_eq!(talk.admitted(ask("u2")).generation, LAST, "a new thread begins there");
    let mut header = talk.clone();
    assert_eq!(header.refused(ask("u1").generation(LAST)), [Code::GenerationInvalid]);
    talk.round(ask("u1 a u3"), "");
    assert_eq!(talk.refused(ask("u1 a u3 a u4")), [Code::GenerationInvalid], "counted by itself");

    let mut talk = Talk::new();
    talk.round(ask("u1").generation(LAST), "c1(A)");
    assert_eq!(codes(&talk.advance(None)), [Code::GenerationInvalid]);
    assert_eq!(talk.refused(ask("u1").generation(LAST + 1)), [Code::GenerationInvalid]);
    talk.up(ask("u1 c1(A)=R").generation(LAST));
}

#[test]
fn under_observe_nothing_is_refused() {
    let mut talk = Talk::observing();
    talk.round(ask("u1"), "c1(A)");
    let renamed = |decide: &mut Decide| decide.name = Some("put".into());
    assert_eq!(decide(&mut talk, 1, "c1=R", renamed), yes());
    assert_eq!(talk.call("c1"), accepted("R"));
    assert!(talk.facts.iter().any(|fact| matches!(fact, Fact::ResultForced)), "but recorded");
}

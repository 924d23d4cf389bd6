//! Model calls, attempts, deadlines.

use super::*;

#[test]
fn a_further_proposal_on_the_last_allowed_call_ends_the_task() {
    let mut talk = Talk::with(|rules| rules.model_calls = Some(2));
    talk.round(ask("u1"), "c1(A)");
    let last = talk.up(ask("u1 c1(A)=R"));
    assert_eq!(talk.settle(last, "c2(B)"), Outcome::Withheld(Code::BudgetExhausted));
    talk.close(last, Ending::Withheld);
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Incomplete)]);
    assert_eq!(talk.refused(ask("u1 c1(A)=R").declared()), [Code::BudgetExhausted]);
    assert_eq!(talk.admitted(ask("u1 c1(A)=R a u2")).generation, 2);
    assert_eq!(talk.tasks().len(), 1);
}

#[test]
fn an_answer_on_the_last_allowed_call_completes_the_task() {
    let mut talk = Talk::with(|rules| rules.model_calls = Some(2));
    talk.round(ask("u1"), "c1(A)");
    talk.round(ask("u1 c1(A)=R"), "");
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Completed)]);
}

#[test]
fn a_further_request_ends_the_task() {
    let mut talk = Talk::with(|rules| rules.model_calls = Some(1));
    talk.up(ask("u1").generation(1));
    assert_eq!(talk.refused(ask("u2").generation(1)), [Code::BudgetExhausted]);
    assert_eq!(talk.refused(ask("u2").generation(1)), [Code::BudgetExhausted]);
    let reason = |fact: &Fact| {
        matches!(
            fact,
            Fact::TaskEnded {
                outcome: TaskOutcome::Incomplete,
                limit: Some(crate::ledger::lanes::Limit::ModelCalls),
                ..
            }
        )
    };
    assert_eq!(talk.facts.iter().filter(|fact| reason(fact)).count(), 1);
    talk.up(ask("u2").generation(2));
}

#[test]
fn attempts_do_not_count_as_model_calls_but_have_a_bound_of_their_own() {
    let mut talk = Talk::with(|rules| rules.model_calls = Some(1));
    for attempt in 1..=8 {
        let id = talk.up(ask("u1"));
        assert_eq!(talk.conversation.exchanges().get(id).unwrap().attempt, attempt);
        talk.close(id, Ending::OutputRefused);
    }
    assert_eq!(talk.refused(ask("u1")), [Code::BudgetExhausted]);
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Incomplete)]);
    assert_eq!(talk.admitted(ask("u1")).generation, 2, "asked again it is a new task");
}

#[test]
fn continuations_have_the_same_bound_whether_overtaken_failed_or_lapsed() {
    let mut talk = Talk::new();
    talk.round(ask("u1"), "c1(A)");
    for attempt in 0..8 {
        let id = talk.up(ask("u1 c1(A)=R").declared());
        match attempt % 3 {
            0 => talk.close(id, Ending::ClientGone { calls_sent: false }),
            1 => talk.pass(15_000),
            _ => {}
        }
    }
    assert_eq!(talk.refused(ask("u1 c1(A)=R").declared()), [Code::BudgetExhausted]);
}

#[test]
fn attempts_that_never_reached_the_model_do_not_count() {
    let mut talk = Talk::new();
    for _ in 0..30 {
        let id = talk.up(ask("u1"));
        talk.close(id, Ending::UpstreamFailed);
    }
    talk.round(ask("u1"), "");
}

#[test]
fn a_generation_s_deadline_fires_once_by_itself() {
    let mut talk = Talk::with(|rules| rules.task_deadline = Some(Millis(5_000)));
    talk.round(ask("u1"), "c1(A)");
    let flight = talk.up(ask("u9"));
    talk.pass(4_999);
    talk.apply(&Event::Tick);
    assert_eq!(talk.call("c1"), CallState::Open);
    talk.pass(1);
    talk.apply(&Event::Tick);
    assert_eq!(talk.call("c1"), CallState::TimedOut);
    assert_eq!(talk.cancelled, [(flight, Code::BudgetExhausted)]);
    assert_eq!(talk.settle(flight, ""), Outcome::Withheld(Code::BudgetExhausted));
    talk.pass(60_000);
    talk.apply(&Event::Tick);
    assert_eq!(talk.tasks().len(), 2);
    assert_eq!(talk.refused(ask("u1 c1(A)=R")), [Code::Late]);
    assert_eq!(talk.refused(ask("u1 c1(A)=!")), [Code::BudgetExhausted]);
    assert_eq!(talk.admitted(ask("u1 c1(A)=! u2")).generation, 2);
}

#[test]
fn a_generation_advanced_to_early_has_its_time_from_its_first_call() {
    let mut talk = Talk::with(|rules| rules.task_deadline = Some(Millis(5_000)));
    talk.advance(Some(7));
    talk.pass(60_000);
    talk.up(ask("u1"));
    talk.pass(4_999);
    talk.up(ask("u1"));
    talk.pass(1);
    assert_eq!(talk.admitted(ask("u1")).generation, 8);
    assert_eq!(talk.tasks(), [(7, TaskOutcome::Incomplete)]);
}

#[test]
fn under_observe_budgets_are_only_noted() {
    let mut talk = Talk::observing();
    talk.rules.model_calls = Some(1);
    let only = talk.up(ask("u1"));
    assert_eq!(talk.settle(only, "c1(A)"), Outcome::Noted(Code::BudgetExhausted));
    let over = talk.admitted(ask("u1 c1(A)=R"));
    assert_eq!(notes(&over), [Code::BudgetExhausted]);
}

#[test]
fn a_loop_of_openings_ends() {
    let mut talk = Talk::new();
    for _ in 0..8 {
        talk.round(ask("u1").generation(1), "get:0(A)");
    }
    assert_eq!(talk.refused(ask("u1").generation(1)), [Code::BudgetExhausted]);
}

#[test]
fn a_task_lets_out_no_more_tool_calls_than_its_budget() {
    let mut talk = Talk::with(|rules| rules.tool_calls = Some(2));
    talk.round(ask("u1"), "c1(A) c2(B)");
    let next = talk.up(ask("u1 c1(A)=R c2(B)=S"));
    assert_eq!(talk.settle(next, "c3(C)"), Outcome::Withheld(Code::BudgetExhausted));
    assert_eq!(talk.settle(next, "c3(C)"), Outcome::Withheld(Code::BudgetExhausted));
    talk.close(next, Ending::Withheld);
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Incomplete)]);
    let limit = talk.facts.iter().find_map(|fact| match fact {
        Fact::TaskEnded { limit, .. } => *limit,
        _ => None,
    });
    assert_eq!(limit, Some(crate::ledger::lanes::Limit::ToolCalls));
    assert_eq!(
        talk.admitted(ask("u1 c1(A)=R c2(B)=S a u2")).generation,
        2,
        "a new task, a new budget"
    );
}

#[test]
fn an_answer_after_the_last_tool_call_completes_the_task() {
    let mut talk = Talk::with(|rules| rules.tool_calls = Some(1));
    talk.round(ask("u1"), "c1(A)");
    talk.round(ask("u1 c1(A)=R"), "");
    assert_eq!(talk.tasks(), [(1, TaskOutcome::Completed)]);
}

#[test]
fn calls_that_a_further_attempt_replaces_give_their_places_back() {
    let mut talk = Talk::with(|rules| rules.tool_calls = Some(1));
    for _ in 0..4 {
        let id = talk.up(ask("u1"));
        assert_eq!(talk.settle(id, "c1(A)"), Outcome::Wanted);
        talk.close(id, Ending::ClientGone { calls_sent: true });
    }
    let id = talk.up(ask("u1"));
    assert_eq!(talk.settle(id, "c1(A) c2(B)"), Outcome::Withheld(Code::BudgetExhausted));
}

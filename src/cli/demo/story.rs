//! The story itself, in five parts.
//!
//! Orders and answers are made up; what happens to them is not. Slowness that a part needs is written
//! into the question as a directive to the scripted model, and left out of the printed line.

use super::agent::{self, Request, call, found, question, with_result};
use super::play::{Break, Outcome, PASSES, Play, refused, withheld};
use serde_json::Value;
use std::io;

/// Tells all parts. A part that does not come out as told is left; the others are still told.
pub(super) async fn tell(play: &mut Play<'_>) -> io::Result<()> {
    settle(answered(play).await)?;
    settle(changed_mind(play).await)?;
    settle(late_answer(play).await)?;
    settle(wrong_results(play).await)?;
    settle(late_result(play).await)?;
    settle(budget(play).await)
}

fn settle(outcome: Outcome<()>) -> io::Result<()> {
    match outcome {
        Ok(()) | Err(Break::Differs) => Ok(()),
        Err(Break::Output(error)) => Err(error),
    }
}

/// One conversation, as the agent keeps it.
struct Thread {
    base: String,
    conversation: &'static str,
}

impl Thread {
    fn with(base: &str, conversation: &'static str) -> Self {
        Thread { base: base.to_owned(), conversation }
    }

    fn at(&self, generation: u64, messages: &[Value]) -> Request {
        Request {
            base: self.base.clone(),
            conversation: self.conversation.to_owned(),
            generation: Some(generation),
            stream: false,
            messages: messages.to_vec(),
        }
    }

    fn streamed(&self, generation: u64, messages: &[Value]) -> Request {
        Request { stream: true, ..self.at(generation, messages) }
    }
}

async fn answered(play: &mut Play<'_>) -> Outcome<()> {
    play.heading("a. One order, two model calls: propose a look-up, then answer from its result")?;
    let thread = Thread::with(&play.stage.guard, "answered");
    let list = question("Where is ORDER-A?");
    let first = play.step("call 1: Where is ORDER-A?", &thread.at(1, &list), PASSES).await?;
    let result = with_result(&list, &first.calls, &found("ORDER-A", "in transit"));
    let second = play.step("call 2: the look-up's result", &thread.at(1, &result), PASSES).await?;
    let first = play.step("call 1, streamed", &thread.streamed(2, &list), PASSES).await?;
    let result = with_result(&list, &first.calls, &found("ORDER-A", "in transit"));
    let streamed = play.step("call 2, streamed", &thread.streamed(2, &result), PASSES).await?;
    let same = second.text == "ORDER-A is in transit." && streamed.text == second.text;
    play.check("agent > user", "both answers say what the result said", &second.text, same)
}

async fn changed_mind(play: &mut Play<'_>) -> Outcome<()> {
    play.heading("b. The user changes their mind while A is looked up (gen: number of the task, x-generation)")?;
    let thread = Thread::with(&play.stage.guard, "changed-mind");
    let list_a = question("Where is ORDER-A?");
    let list_b = question("Look up ORDER-B instead.");
    let a = play.step("gen 41: Where is ORDER-A?", &thread.at(41, &list_a), PASSES).await?;
    let b = play.step("gen 42: Look up ORDER-B instead.", &thread.at(42, &list_b), PASSES).await?;
    let from_a = found("ORDER-A", "in transit");
    let into_b = thread.at(42, &with_result(&list_b, &a.calls, &from_a));
    play.step("gen 42: A's result, put into B's list", &into_b, refused("stale")).await?;
    let into_a = thread.at(41, &with_result(&list_a, &a.calls, &from_a));
    play.step("gen 41: A's result, in A's own list", &into_a, refused("stale_generation")).await?;
    let of_b = with_result(&list_b, &b.calls, &found("ORDER-B", "delivered"));
    let answer = play.step("gen 42: B's result", &thread.at(42, &of_b), PASSES).await?;
    let only_b = answer.text == "ORDER-B is delivered.";
    play.check("agent > user", "only B is answered, nothing of A in it", &answer.text, only_b)
}

async fn late_answer(play: &mut Play<'_>) -> Outcome<()> {
    play.heading(
        "c. A's result was in time, but the user moves on while the model writes A's answer",
    )?;
    for streamed in [false, true] {
        late_answer_once(play, streamed).await?;
    }
    Ok(())
}

async fn late_answer_once(play: &mut Play<'_>, streamed: bool) -> Outcome<()> {
    let (name, how) =
        if streamed { ("late-answer-streamed", ", streamed") } else { ("late-answer", "") };
    let thread = Thread::with(&play.stage.guard, name);
    // The second answer stops after a few chunks, until somebody aborts it.
    let list_a = question("Where is ORDER-A? [[script:desk,slow]]");
    let list_b = question("Look up ORDER-B instead.");
    let a = play.step("gen 1: Where is ORDER-A?", &thread.at(1, &list_a), PASSES).await?;
    let result = with_result(&list_a, &a.calls, &found("ORDER-A", "in transit"));
    let result = Request { stream: streamed, ..thread.at(1, &result) };
    let before = play.stage.seen(&play.http).await;
    let http = play.http.clone();
    #[expect(clippy::disallowed_methods, reason = "awaited below")]
    let pending = tokio::spawn(async move { agent::send(&http, &result).await });
    let writing = play.until(|seen| seen["open"] == 1).await;
    let sent = play.requests().await - count(&before["requests"]);
    let what = format!("gen 1: A's result{how}");
    play.check("agent > model", &what, "the model is writing A's answer", writing)?;
    play.step("gen 2: Look up ORDER-B instead.", &thread.at(2, &list_b), PASSES).await?;
    let reply = match pending.await {
        Ok(reply) => reply,
        Err(error) => return Err(Break::Output(io::Error::other(error))),
    };
    let mut told = withheld("stale_answer");
    if streamed {
        told.status = 200; // the head was sent before the user moved on
    }
    let answer = play.judge(&format!("gen 1: A's answer{how}"), reply, sent, told)?;
    if answer.text.contains("transit") {
        return play.check("model > agent", "the rest of A's answer", "it came through", false);
    }
    let ended = |seen: &Value| seen["open"] == 0 && aborted(seen) == aborted(&before) + 1;
    let stopped = play.until(ended).await;
    play.check("guard > model", "abort A's generation", "the model stopped writing", stopped)
}

fn count(number: &Value) -> u64 {
    number.as_u64().unwrap_or(0)
}

fn aborted(seen: &Value) -> usize {
    seen["aborted"].as_array().map_or(0, Vec::len)
}

async fn wrong_results(play: &mut Play<'_>) -> Outcome<()> {
    play.heading("d. Results that are not this call's, or come twice, or too late")?;
    let thread = Thread::with(&play.stage.guard, "wrong-results");
    let list = question("Where is ORDER-A?");
    let first = play.step("gen 1: Where is ORDER-A?", &thread.at(1, &list), PASSES).await?;
    let invented = [call("call_never_proposed", "ORDER-A")];
    let list_of =
        |calls: &[Value], content: &str| thread.at(1, &with_result(&list, calls, content));
    let in_transit = found("ORDER-A", "in transit");
    let request = list_of(&invented, &in_transit);
    play.step("an id that nobody proposed", &request, refused("unmatched")).await?;
    let id = first.calls.first().and_then(|call| call["id"].as_str()).unwrap_or_default();
    let request = list_of(&[call(id, "ORDER-B")], &in_transit);
    play.step("the call's arguments changed to ORDER-B", &request, refused("mismatch")).await?;
    let request = list_of(&first.calls, &found("ORDER-B", "delivered"));
    play.step("a result that names ORDER-B", &request, refused("mismatch")).await?;
    let right = list_of(&first.calls, &in_transit);
    play.step("the right result: nothing above spoilt it", &right, PASSES).await?;
    play.step("the same once more", &right, refused("duplicate")).await?;
    let request = list_of(&first.calls, &found("ORDER-A", "lost"));
    play.step("another result for the same call", &request, refused("conflict")).await?;
    Ok(())
}

async fn late_result(play: &mut Play<'_>) -> Outcome<()> {
    play.heading("   (from here on a second guard, which gives look-ups 0.3 s)")?;
    let thread = Thread::with(&play.stage.hasty, "late-result");
    let list = question("Where is ORDER-A?");
    let first = play.step("gen 1: Where is ORDER-A?", &thread.at(1, &list), PASSES).await?;
    // A wrong result is `mismatch` while the call is open and `late` once its time is up, and a
    // refusal leaves no trace: asking until the answer changes is a wait that cannot race.
    let wrong = with_result(&list, &first.calls, &found("ORDER-B", "delivered"));
    let before = play.requests().await;
    let probe = play.while_answered(&thread.at(1, &wrong), "mismatch").await;
    let sent = play.requests().await - before;
    play.judge("a wrong result, until the deadline is past", probe, sent, refused("late"))?;
    let result = with_result(&list, &first.calls, &found("ORDER-A", "in transit"));
    play.step("the right result, after the deadline", &thread.at(1, &result), refused("late"))
        .await?;
    let notice = with_result(&list, &first.calls, super::stage::TIMEOUT_NOTICE);
    let answer = play.step("a timeout notice in its place", &thread.at(1, &notice), PASSES).await?;
    let honest = answer.text == "ORDER-A could not be looked up.";
    play.check("agent > user", "the task goes on and says so", &answer.text, honest)
}

async fn budget(play: &mut Play<'_>) -> Outcome<()> {
    play.heading("e. A model that never stops calling: two model calls are this task's budget")?;
    let thread = Thread::with(&play.stage.guard, "budget");
    let list = question("Where is ORDER-A? [[script:desk,again]]");
    let first = play.step("gen 1: Where is ORDER-A?", &thread.at(1, &list), PASSES).await?;
    let result = with_result(&list, &first.calls, &found("ORDER-A", "in transit"));
    let what = "its result; the model wants another call";
    play.step(what, &thread.at(1, &result), withheld("budget_exhausted")).await?;
    Ok(())
}

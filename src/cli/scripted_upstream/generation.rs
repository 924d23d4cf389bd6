//! Says a plan, piece by piece, until its end, an abort, or a client that left.
//!
//! One [`Voice`] per choice decides the next step; [`Generation`] turns steps into a whole completion
//! or into stream events. Nothing is spawned: the response body pulls, so dropping it stops everything.

use super::plan::{Piece, Plan};
use super::seen::Open;
use super::shapes::{self, Choice, Head, Usage};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// A generation under way.
#[derive(Debug)]
pub(super) struct Generation {
    voices: Vec<Voice>,
    head: Head,
    /// With several choices SGLang gives each its own id.
    ids: Vec<String>,
    prompt_tokens: usize,
    include_usage: bool,
    open: Open,
    events: VecDeque<Bytes>,
    ended: bool,
}

/// How a whole completion ended.
pub(super) enum Whole {
    /// With this body.
    Completion(String),
    /// With this error.
    Failure {
        /// The status.
        status: u16,
        /// In words.
        message: String,
    },
}

#[derive(Debug)]
struct Voice {
    plan: Plan,
    at: usize,
    begun: bool,
    finish: Option<String>,
}

enum Step {
    Piece(Piece),
    Finish(String),
    Failure { status: u16, message: String },
}

impl Generation {
    /// Prepares to say `plans`, one per choice.
    pub(super) fn new(
        plans: Vec<Plan>,
        head: Head,
        ids: Vec<String>,
        prompt_tokens: usize,
        include_usage: bool,
        open: Open,
    ) -> Self {
        let voices =
            plans.into_iter().map(|plan| Voice { plan, at: 0, begun: false, finish: None });
        Generation {
            voices: voices.collect(),
            head,
            ids,
            prompt_tokens,
            include_usage,
            open,
            events: VecDeque::new(),
            ended: false,
        }
    }

    /// Says everything, then gives it whole.
    pub(super) async fn whole(mut self) -> Whole {
        let mut choices = Vec::with_capacity(self.voices.len());
        for voice in &mut self.voices {
            let mut choice = Choice::default();
            loop {
                match voice.step(&self.open).await {
                    Step::Piece(Piece::Text(text)) => choice.text.push_str(&text),
                    Step::Piece(_) => {}
                    Step::Finish(finish) => {
                        // An aborted generation's unfinished calls never become calls.
                        if finish != "abort" {
                            choice.calls = std::mem::take(&mut voice.plan.calls);
                        }
                        choice.finish = finish;
                        break;
                    }
                    Step::Failure { status, message } => {
                        self.open.finish();
                        return Whole::Failure { status, message };
                    }
                }
            }
            choices.push(choice);
        }
        let body = self.head.completion(&choices, self.usage());
        self.open.finish();
        Whole::Completion(body)
    }

    /// The next event of the stream; `None` at its end.
    pub(super) async fn event(&mut self) -> Option<Bytes> {
        while self.events.is_empty() && !self.ended {
            self.round().await;
        }
        let event = self.events.pop_front();
        if self.ended && self.events.is_empty() {
            // Before the last event is sent: a client may close as soon as it has it.
            self.open.finish();
        }
        event
    }

    /// Lets every voice say one piece.
    async fn round(&mut self) {
        for index in 0..self.voices.len() {
            let head = Head { id: self.ids[index].clone(), ..self.head.clone() };
            let voice = &mut self.voices[index];
            if voice.finish.is_some() {
                continue;
            }
            let step = voice.step(&self.open).await;
            if !voice.begun && !matches!(step, Step::Failure { .. }) {
                voice.begun = true;
                self.events.push_back(event(&head.role_chunk(index)));
            }
            match step {
                Step::Piece(piece) => {
                    let chunk = head.piece_chunk(index, &piece, &voice.plan.calls);
                    self.events.push_back(event(&chunk));
                }
                Step::Finish(finish) => voice.finish = Some(finish),
                Step::Failure { status, message } => {
                    self.events.push_back(event(&shapes::error_event(status, &message)));
                    return self.close();
                }
            }
        }
        if self.voices.iter().all(|voice| voice.finish.is_some()) {
            for (index, voice) in self.voices.iter().enumerate() {
                let head = Head { id: self.ids[index].clone(), ..self.head.clone() };
                let finish = voice.finish.as_deref().unwrap_or("stop");
                self.events.push_back(event(&head.finish_chunk(index, finish)));
            }
            self.close();
        }
    }

    /// What follows the last choice.
    fn close(&mut self) {
        if self.include_usage {
            self.events.push_back(event(&self.head.usage_chunk(self.usage())));
        }
        self.events.push_back(event("[DONE]"));
        self.ended = true;
    }

    fn usage(&self) -> Usage {
        let completion = self.voices.iter().map(|voice| voice.at).sum();
        Usage { prompt: self.prompt_tokens, completion }
    }
}

impl Voice {
    async fn step(&mut self, open: &Open) -> Step {
        if self.at == 0 {
            wait(self.plan.first_delay, open).await;
        }
        if self.plan.stall_after == Some(self.at) {
            open.aborted().await;
        }
        if open.is_aborted() {
            return Step::Finish("abort".to_owned());
        }
        if let Some(abort) = self.plan.abort.as_ref().filter(|abort| abort.after <= self.at) {
            let message = abort.message.clone().unwrap_or_else(|| "Aborted".to_owned());
            return match abort.status {
                Some(status) => Step::Failure { status, message },
                None => Step::Finish("abort".to_owned()),
            };
        }
        let Some(piece) = self.plan.pieces.get(self.at).cloned() else {
            return Step::Finish(self.plan.finish.clone());
        };
        wait(self.plan.delay, open).await;
        if open.is_aborted() {
            return Step::Finish("abort".to_owned());
        }
        self.at += 1;
        Step::Piece(piece)
    }
}

/// Waits, but not past an abort.
pub(super) async fn wait(time: Duration, open: &Open) {
    if !time.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = open.aborted() => {}
        }
    }
}

fn event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

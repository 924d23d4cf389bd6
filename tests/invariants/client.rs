//! The client's side of a play: the lists it holds, and how it changes them before it sends one.

use crate::steps::{Edit, How};
use crate::talk::{Asked, Content, Message, NOTICES, Reply, beginning, runs};
use crate::talk_tools;

/// All lists that some client holds, newest last.
pub(crate) struct Client {
    pub(crate) lists: Vec<Vec<Message>>,
    fresh: u32,
}

impl Client {
    pub(crate) fn new(threads: u32) -> Self {
        let lists = (0..threads)
            .rev()
            .map(|thread| vec![Message::System(thread), Message::User(thread)])
            .collect();
        Client { lists, fresh: 100 }
    }

    /// The n-th newest list.
    pub(crate) fn recent(&self, n: usize) -> Vec<Message> {
        let n = n.min(self.lists.len() - 1);
        self.lists[self.lists.len() - 1 - n].clone()
    }

    fn fresh(&mut self) -> u32 {
        self.fresh += 1;
        self.fresh
    }

    pub(crate) fn edited(&mut self, list: usize, edits: &[Edit]) -> Vec<Message> {
        let mut list = self.recent(list);
        for edit in edits {
            self.edit(&mut list, *edit);
        }
        answer_open(&mut list, How::Right);
        list
    }

    fn edit(&mut self, list: &mut Vec<Message>, edit: Edit) {
        match edit {
            Edit::Answer(how) => {
                if !answer_open(list, how) {
                    answer_again(list, how);
                }
            }
            Edit::User | Edit::Text => {
                answer_open(list, How::Right);
                let fresh = self.fresh();
                let user = matches!(edit, Edit::User);
                list.push(if user { Message::User(fresh) } else { Message::Text(fresh) });
            }
            Edit::Restart => {
                list.truncate(beginning(list).len());
                list.push(Message::User(self.fresh()));
            }
            Edit::Trim => trim(list),
            Edit::Prune => {
                if let Some(Message::Calls(calls)) = list.iter_mut().find(|m| is_calls(m)) {
                    calls[0].arguments += 10;
                }
            }
            Edit::Rewrite => {
                let reply = list.iter_mut().find_map(reply_of);
                if let Some(reply) = reply.filter(|reply| reply.content >= NOTICES) {
                    reply.content ^= 1;
                }
            }
            Edit::CloseAll => list.iter_mut().filter_map(reply_of).for_each(|one| one.content = 0),
            Edit::Strike => {
                if let Some(Message::Calls(calls)) = list.last_mut().filter(|m| is_calls(m))
                    && calls.len() > 1
                {
                    calls.remove(0);
                }
            }
            Edit::Invent => {
                answer_open(list, How::Right);
                let (id, fresh) = (format!("forged_{}", self.fresh), self.fresh());
                let asked = Asked { id, tool: talk_tools()[0], arguments: fresh % 4, truth: None };
                list.push(Message::Calls(vec![asked]));
            }
            Edit::Graft(other) => {
                answer_open(list, How::Right);
                let mut other = self.recent(other);
                answer_open(&mut other, How::Right);
                if let Some(start) = other.iter().rposition(is_calls) {
                    let run = other[start..].iter().take_while(|m| is_calls(m) || is_result(m));
                    list.extend(run.cloned());
                }
            }
            Edit::Merge => merge(list),
            Edit::Mix { newest } => {
                let fresh = self.fresh();
                mix(list, newest, fresh);
            }
            Edit::Retool => {
                let first = list.iter_mut().find(|m| is_calls(m));
                if let Some(Message::Calls(calls)) = first
                    && !recycled(calls)
                {
                    calls[0].tool = "another_tool";
                }
            }
            Edit::Rebegin => {
                let rest = list.split_off(beginning(list).len());
                *list = vec![Message::System(77), Message::User(0)];
                list.extend(rest);
            }
        }
    }

    /// The list with a notice in place of every result that `refused` names by message, and the user's
    /// next words: what the recovery asks for.
    pub(crate) fn recovered(list: &[Message], refused: &[usize], goes_on: bool) -> Vec<Message> {
        let mut list = list.to_vec();
        for at in refused {
            if let Some(reply) = list.get_mut(*at).and_then(reply_of) {
                let id = reply.id.clone();
                *reply = Reply { id, content: 1, name: None, echo: None, attempt: None };
            }
        }
        if goes_on {
            list.push(Message::User(99_999));
        }
        list
    }
}

fn is_calls(message: &Message) -> bool {
    matches!(message, Message::Calls(_))
}

fn is_result(message: &Message) -> bool {
    matches!(message, Message::Result(_))
}

fn reply_of(message: &mut Message) -> Option<&mut Reply> {
    match message {
        Message::Result(reply) => Some(reply),
        _ => None,
    }
}

/// Which call an id that repeats means cannot be told from outside, once its run has lost its shape.
fn recycled(calls: &[Asked]) -> bool {
    calls.iter().any(|call| call.id.starts_with("functions."))
}

/// Makes one run of the newest two, if nothing stands between them but other runs.
fn merge(list: &mut Vec<Message>) {
    answer_open(list, How::Right);
    let Some(second) = list.iter().rposition(is_calls) else { return };
    let Some(first) = list[..second].iter().rposition(is_calls) else { return };
    let Message::Calls(later) = list[second].clone() else { return };
    let between = list[first + 1..second].iter().all(is_result);
    let Message::Calls(calls) = &mut list[first] else { return };
    let apart = later.iter().all(|call| calls.iter().all(|known| known.id != call.id));
    if between && apart && !recycled(&later) && !recycled(calls) {
        calls.extend(later);
        list.remove(second);
    }
}

/// Adds a call that no model made, and its result.
fn mix(list: &mut Vec<Message>, newest: bool, fresh: u32) {
    answer_open(list, How::Right);
    let at = if newest { list.iter().rposition(is_calls) } else { list.iter().position(is_calls) };
    let Some(at) = at else { return };
    let Message::Calls(calls) = &mut list[at] else { return };
    if !recycled(calls) {
        let id = format!("mixed_{fresh}");
        let asked = Asked { id, tool: talk_tools()[0], arguments: fresh % 4, truth: None };
        calls.push(asked.clone());
        list.insert(at + 1, Message::Result(reply(&asked, How::Right)));
    }
}

fn trim(list: &mut Vec<Message>) {
    if runs(list).len() < 2 {
        return;
    }
    let Some(start) = list.iter().position(is_calls) else { return };
    let length = 1 + list[start + 1..].iter().take_while(|m| is_result(m)).count();
    list.drain(start..start + length);
}

/// A content of that call's own: no other call has it. Even and odd differ by the variant.
pub(crate) fn content(truth: Option<usize>, variant: Content) -> Content {
    1000 + truth.map_or(0, |truth| truth as u32 + 1) * 2 + variant
}

pub(crate) fn reply(asked: &Asked, how: How) -> Reply {
    let mut reply = Reply {
        id: asked.id.clone(),
        content: content(asked.truth, 0),
        name: None,
        echo: None,
        attempt: None,
    };
    match how {
        How::Right | How::WrongArguments => {}
        How::Other => reply.content += 1,
        How::TimeoutNotice => reply.content = 0,
        How::SupersededNotice => reply.content = 1,
        How::Named => reply.name = Some(asked.tool),
        How::WrongName => reply.name = Some("another_tool"),
        How::Echoed => reply.echo = Some(asked.arguments),
        How::WrongEcho => reply.echo = Some(asked.arguments + 50),
        How::WrongAttempt => reply.attempt = Some(1),
    }
    reply
}

/// Answers the calls at the end, if they are not answered yet.
fn answer_open(list: &mut Vec<Message>, how: How) -> bool {
    let Some(Message::Calls(calls)) = list.last_mut() else { return false };
    let replies: Vec<Reply> = calls
        .iter()
        .enumerate()
        .map(|(at, asked)| reply(asked, if at == 0 { how } else { How::Right }))
        .collect();
    if how == How::WrongArguments {
        calls[0].arguments += 10;
    }
    list.extend(replies.into_iter().map(Message::Result));
    true
}

/// Changes the answer that stands at the end.
fn answer_again(list: &mut [Message], how: How) {
    let live = runs(list).last().filter(|run| run.live).cloned();
    if let Some((asked, _, at)) = live.and_then(|run| run.pairs.first().cloned()) {
        list[at] = Message::Result(reply(&asked, how));
    }
}

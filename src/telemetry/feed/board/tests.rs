#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::ledger::digest::DigestKey;
use crate::ledger::event::Millis;
use crate::telemetry::feed::exchange::{End, FaultSeen, Subject};
use crate::telemetry::labels::FaultVerdict;

fn key(name: &str) -> ConversationKey {
    let key = DigestKey::new([1; 32]);
    let conversation = key.bytes("conversation", name.as_bytes());
    ConversationKey { principal: key.bytes("principal", b"anonymous"), conversation }
}

/// A delivered exchange of that conversation and generation.
pub(crate) fn exchange(name: &str, id: u64, generation: u64) -> Exchange {
    let outcome = ExchangeOutcome::Delivered;
    Exchange {
        id: ExchangeId(u128::from(id)),
        subject: Some(Subject { key: key(name), name: name.into() }),
        request_id: format!("req-{id}").into(),
        rid: None,
        route: Route::Chat,
        asks: None,
        generation: Some(generation),
        attempt: 1,
        first: true,
        stream: false,
        began: 1_000_000_000 + id,
        sent: Some(1.0),
        first_data: None,
        end: Some(End { outcome, status: Some(200), took: 20.0 }),
        faults: Vec::new(),
        more_faults: 0,
    }
}

fn refused(name: &str, id: u64, generation: u64, code: Code) -> Exchange {
    let outcome = ExchangeOutcome::Refused;
    Exchange {
        attempt: 0,
        end: Some(End { outcome, status: Some(422), took: 1.0 }),
        faults: vec![FaultSeen {
            code,
            verdict: FaultVerdict::Refuse,
            param: "messages[3].tool_call_id".into(),
            message: "words".into(),
            tool_call_id: None,
            recovery: "way out",
        }],
        ..exchange(name, id, generation)
    }
}

fn ended(generation: u64, outcome: TaskOutcome) -> [Fact; 1] {
    [Fact::TaskEnded { generation, outcome, limit: None, took: Millis(7) }]
}

fn names(page: &Page) -> Vec<&str> {
    page.rows.iter().map(|row| &*row.name).collect()
}

fn look(board: &Board, filter: Filter) -> Page {
    board.page(&Look { filter, limit: 10, ..Look::default() })
}

#[test]
fn a_task_is_open_until_it_ends_and_a_newer_one_opens_it_again() {
    let mut board = Board::default();
    let ended_of = |board: &Board| look(board, Filter::default()).rows[0].ended;
    board.exchange(Exchange { end: None, ..exchange("chat", 1, 41) });
    assert_eq!(look(&board, Filter::default()).rows[0].under_way, 1);
    board.exchange(exchange("chat", 1, 41));
    let row = look(&board, Filter::default()).rows.remove(0);
    assert_eq!((row.under_way, row.exchanges, row.ended), (0, 1, None));
    board.facts(&key("chat"), 1_000_000_050, &ended(41, TaskOutcome::Superseded));
    assert_eq!(ended_of(&board), Some(TaskOutcome::Superseded));
    board.exchange(Exchange { end: None, ..exchange("chat", 2, 42) });
    assert_eq!(ended_of(&board), None, "the newer task is under way");
    board.exchange(refused("chat", 3, 41, Code::StaleGeneration));
    board.facts(&key("chat"), 1_000_000_090, &ended(42, TaskOutcome::Completed));
    board.exchange(exchange("chat", 2, 42));
    assert_eq!(ended_of(&board), Some(TaskOutcome::Completed), "its last exchange ends after it");
    let (row, exchanges, tasks, forgot) = board.one(&Some(key("chat"))).unwrap();
    assert_eq!(
        (row.generation, row.refused, row.last_code),
        (Some(42), 1, Some(Code::StaleGeneration))
    );
    assert_eq!((exchanges.len(), tasks.len(), forgot), (3, 2, false));
}

#[test]
fn filters_pick_by_name_standing_and_code() {
    let mut board = Board::default();
    board.exchange(exchange("alpha", 1, 1));
    board.exchange(exchange("beta", 2, 1));
    board.facts(&key("beta"), 1_000_000_010, &ended(1, TaskOutcome::Completed));
    board.exchange(refused("gamma", 3, 1, Code::Stale));
    board.exchange(Exchange { subject: None, ..refused("-", 4, 1, Code::MissingResult) });
    let pick = |standing, code, text: Option<&str>| {
        let filter = Filter { text: text.map(str::to_owned), standing, code };
        names(&look(&board, filter)).join(" ")
    };
    assert_eq!(pick(None, None, None), " gamma beta alpha");
    assert_eq!(pick(Some(Standing::Open), None, None), "gamma alpha");
    assert_eq!(pick(Some(Standing::Ended(TaskOutcome::Completed)), None, None), "beta");
    assert_eq!(pick(Some(Standing::Refused), None, None), " gamma");
    assert_eq!(pick(None, Some(Code::Stale), None), "gamma");
    assert_eq!(pick(None, None, Some("lph")), "alpha");
}

#[test]
fn pages_tell_each_conversation_once_whatever_changes_meanwhile() {
    let mut board = Board::default();
    (0..25).for_each(|n| board.exchange(exchange(&format!("c{n:02}"), n, 1)));
    let mut told = Vec::new();
    let mut before = None;
    loop {
        let page = board.page(&Look { before, limit: 10, ..Look::default() });
        told.extend(page.rows.iter().map(|row| row.name.to_string()));
        board.exchange(exchange("c24", 100 + told.len() as u64, 1));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let wanted: Vec<String> = (0..25).rev().map(|n| format!("c{n:02}")).collect();
    assert_eq!(told, wanted);
    let at = board.changes();
    board.exchange(exchange("c03", 500, 1));
    assert_eq!(board.changed(at, 10), [Some(key("c03"))]);
}

#[test]
fn the_board_is_bounded_whatever_comes() {
    let mut board = Board::default();
    let long = "x".repeat(256);
    for n in 0..30_000u64 {
        let name = format!("{n}-{long}");
        let mut exchange = refused(&name, n, 1, Code::MissingResult);
        exchange.faults[0].message = "m".repeat(1600).into();
        board.exchange(exchange);
    }
    for n in 0..1000 {
        board.exchange(exchange("one", 50_000 + n, 1));
        board.facts(&key("one"), 1_000_000_000, &ended(n, TaskOutcome::Completed));
    }
    assert_eq!(board.held(), ROWS);
    assert_eq!(board.recent.len(), ROWS);
    assert_eq!(board.seen(), 30_001);
    assert!(board.order.len() <= EXCHANGES && board.bytes <= BYTES);
    let (_, exchanges, tasks, forgot) = board.one(&Some(key("one"))).unwrap();
    assert!(exchanges.len() <= EXCHANGES_EACH && tasks.len() <= TASKS_EACH && forgot);
    assert_eq!(board.page(&Look { limit: 1_000_000, ..Look::default() }).rows.len(), PAGE);
    let held: usize = board.rows.values().map(|entry| entry.exchanges.len()).sum();
    assert!(held <= EXCHANGES, "{held}");
}

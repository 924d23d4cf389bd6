//! What is asked of the server: each question is one Lua script on one key (or on keys of one hash slot),
//! so that it is one atomic step there and one round trip from here. Each reply begins with the server's
//! time. A script is sent by its digest; a server that does not know it (`NOSCRIPT`: restarted, failed
//! over) is sent the text.

use super::frame::Version;
use crate::ledger::event::Millis;
use redis::{Cmd, Value};

/// A script and the digest that the server knows it by.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

/// The scripts that we use.
pub(super) struct Scripts {
    /// `key` → the value.
    pub(super) read: Script,
    /// `key; expected version or nothing, new value or nothing, lifetime, our time or 0, tolerance, change` →
    /// `0` and the newer value; `1`: done; `2`: our time is off. With a change, the new value is what the one that is
    /// there begins with from now on, and the change is appended.
    pub(super) write: Script,
    /// `set; member, now, until, most` → whether the member is in the set, which holds no more than `most`.
    pub(super) place: Script,
    /// `set; member` → nothing.
    pub(super) leave: Script,
    /// `list; time or nothing, member, …` → nothing. A member without a time is taken off.
    pub(super) list: Script,
    /// `list; until, held until, most` → the members due until then, which are held.
    pub(super) claim: Script,
    /// `list; time, member` → nothing. The member is taken off if it still has that time.
    pub(super) unlist: Script,
    /// `identity, sign of life; ours` → the identity, ours when there was none.
    pub(super) probe: Script,
}

const READ: &str = r"
local t = redis.call('TIME')
return {t[1] * 1000 + math.floor(t[2] / 1000), redis.call('GET', KEYS[1])}";

// Writing after TIME needs replication by effects: the default since Redis 5, the only way since 7.
const WRITE: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local there = redis.call('GETRANGE', KEYS[1], 0, 15)
if there ~= ARGV[1] then
  if ARGV[2] ~= '' and there == string.sub(ARGV[2], 1, 16) then return {now, 1} end
  return {now, 0, redis.call('GET', KEYS[1])}
end
local ours = tonumber(ARGV[4])
if ours ~= 0 and math.abs(now - ours) > tonumber(ARGV[5]) then return {now, 2} end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
elseif ARGV[6] ~= '' then
  local length = redis.call('STRLEN', KEYS[1])
  redis.call('SETRANGE', KEYS[1], 0, ARGV[2])
  redis.call('SETRANGE', KEYS[1], length, ARGV[6])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return {now, 1}";

const PLACE: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
if not redis.call('ZSCORE', KEYS[1], ARGV[1])
  and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then return {now, 0} end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
local life = ARGV[3] - ARGV[2]
if redis.call('PTTL', KEYS[1]) < life then redis.call('PEXPIRE', KEYS[1], life) end
return {now, 1}";

const LEAVE: &str = r"
local t = redis.call('TIME')
redis.call('ZREM', KEYS[1], ARGV[1])
return {t[1] * 1000 + math.floor(t[2] / 1000)}";

const LIST: &str = r"
local t = redis.call('TIME')
for i = 1, #ARGV, 2 do
  if ARGV[i] == '' then
    redis.call('ZREM', KEYS[1], ARGV[i + 1])
  else
    redis.call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return {t[1] * 1000 + math.floor(t[2] / 1000)}";

const CLAIM: &str = r"
local t = redis.call('TIME')
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
for _, member in ipairs(due) do redis.call('ZADD', KEYS[1], ARGV[2], member) end
table.insert(due, 1, t[1] * 1000 + math.floor(t[2] / 1000))
return due";

const UNLIST: &str = r"
local t = redis.call('TIME')
local at = redis.call('ZSCORE', KEYS[1], ARGV[2])
if at and tonumber(at) == tonumber(ARGV[1]) then redis.call('ZREM', KEYS[1], ARGV[2]) end
return {t[1] * 1000 + math.floor(t[2] / 1000)}";

const PROBE: &str = r"
local t = redis.call('TIME')
redis.call('SET', KEYS[2], '1', 'PX', '60000')
local there = redis.call('GET', KEYS[1])
if not there then
  redis.call('SET', KEYS[1], ARGV[1])
  there = ARGV[1]
end
return {t[1] * 1000 + math.floor(t[2] / 1000), there}";

impl Script {
    fn new(text: &'static str) -> Self {
        Script { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// The question, by digest.
    pub(super) fn by_hash(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> Cmd {
        command("EVALSHA", self.hash.as_bytes(), keys, arguments)
    }

    /// The question, by text.
    pub(super) fn by_text(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> Cmd {
        command("EVAL", self.text.as_bytes(), keys, arguments)
    }
}

impl Default for Scripts {
    fn default() -> Self {
        Scripts {
            read: Script::new(READ),
            write: Script::new(WRITE),
            place: Script::new(PLACE),
            leave: Script::new(LEAVE),
            list: Script::new(LIST),
            claim: Script::new(CLAIM),
            unlist: Script::new(UNLIST),
            probe: Script::new(PROBE),
        }
    }
}

fn command(name: &str, script: &[u8], keys: &[&[u8]], arguments: &[&[u8]]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys.len());
    for one in keys.iter().chain(arguments) {
        command.arg(*one);
    }
    command
}

/// The server's answer, taken apart.
pub(super) struct Reply {
    /// The server's time.
    pub(super) now: Millis,
    rest: Vec<Value>,
}

impl Reply {
    /// Takes it apart, if it is one of a script of ours.
    pub(super) fn of(value: Value) -> Option<Self> {
        let Value::Array(mut values) = value else { return None };
        if values.is_empty() {
            return None;
        }
        let rest = values.split_off(1);
        match values.pop() {
            Some(Value::Int(now)) => Some(Reply { now: Millis(u64::try_from(now).ok()?), rest }),
            _ => None,
        }
    }

    /// The number that stands first after the time.
    pub(super) fn number(&self) -> Option<i64> {
        match self.rest.first() {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// All values after the time.
    pub(super) fn values(&self) -> &[Value] {
        &self.rest
    }

    /// The value that stands last; empty when it is nil or missing.
    pub(super) fn bytes(&self) -> &[u8] {
        match self.rest.last() {
            Some(Value::BulkString(bytes)) => bytes,
            _ => &[],
        }
    }
}

/// The bytes that a version is compared by; none when there must be nothing.
pub(super) fn expected(version: Option<&Version>) -> &[u8] {
    version.map_or(&[], Version::as_bytes)
}

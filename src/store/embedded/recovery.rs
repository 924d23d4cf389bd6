//! What an earlier process left: every segment is read, and nothing is changed before all is understood.
//!
//! A record that is broken is one of two things. Either it was being written when the process or the power
//! went: a *tear*, behind which nothing was promised; it is cut off. Or it was whole once and was damaged
//! since: then the start stops, as what else is missing cannot be known. To tell them apart the log writes,
//! about once a second, up to where everything is on the disk itself; a tear lies behind that.
//!
//! A change whose conversation is not there as it was before it stands *apart*, with all changes that follow it. It
//! may: what it follows was in a segment that is cleaned away, then its conversation stands whole behind it; or was
//! torn off, then nothing was promised of either. Anything else is damage.

use super::chain::{Chain, Place, Position};
use super::directory::Directory;
use super::frame::{self, Foreign, HEAD, Kind, Unreadable};
use super::log::Segment;
use super::{OpenError, frame::FORMAT};
use crate::ledger::digest::DigestKey;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// What was found.
#[derive(Default)]
pub(super) struct Recovered {
    pub(super) segments: BTreeMap<u64, Segment>,
    /// Where each conversation is.
    pub(super) states: HashMap<[u8; 32], Chain>,
    /// The last segment, and where it goes on.
    pub(super) last: Option<(Arc<File>, Position)>,
    /// Bytes that were cut off.
    pub(super) cut: u64,
}

/// Reads all segments.
pub(super) fn recover(directory: &Directory, key: &DigestKey) -> Result<Recovered, OpenError> {
    let mut numbers = directory.segments()?;
    for pair in numbers.windows(2) {
        if pair[1] != pair[0] + 1 {
            let path = directory.segment(pair[0] + 1);
            return Err(OpenError::Missing { path });
        }
    }
    let mut reading = Reading::default();
    let mut unborn = None;
    for number in &numbers {
        let path = directory.segment(*number);
        let bytes = fs::read(&path).map_err(OpenError::io(&path))?;
        match frame::check_head(&bytes, *number, key) {
            Ok(()) => reading.segment(*number, &path, &bytes)?,
            // It was being made when the process or the power went.
            Err(Foreign::Cut) if Some(number) == numbers.last() => unborn = Some(*number),
            Err(foreign) => return Err(refused(foreign, path)),
        }
    }
    reading.judge_tears(directory)?;
    reading.judge_apart(directory, numbers.first().copied().unwrap_or_default())?;
    if let Some(number) = unborn {
        directory.delete(number).map_err(OpenError::io(&directory.segment(number)))?;
        numbers.pop();
    }
    open(directory, &numbers, reading)
}

fn refused(foreign: Foreign, path: std::path::PathBuf) -> OpenError {
    match foreign {
        Foreign::Cut => OpenError::Damaged { path, offset: 0, why: "its head is cut off".into() },
        Foreign::NotOurs => {
            OpenError::Damaged { path, offset: 0, why: "it is no segment of this store".into() }
        }
        Foreign::Format(found) => {
            let format = format!("format {found}, and this version reads format {FORMAT}");
            OpenError::Newer { path, format }
        }
        Foreign::Key => OpenError::OtherKey { path },
    }
}

/// A change of a conversation that is not there as it was before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Apart {
    at: Position,
    follows: Option<Position>,
}

/// What was read so far.
#[derive(Default)]
struct Reading {
    states: HashMap<[u8; 32], Chain>,
    /// The last change that stands apart of each conversation, and the first.
    apart: HashMap<[u8; 32], (Place, Apart)>,
    /// Every change that stands apart, but for those that follow another one.
    all_apart: Vec<Apart>,
    /// Where each segment's records end, and how many bytes follow.
    ends: BTreeMap<u64, (u64, u64)>,
    /// Up to there everything was on the disk.
    synced: Position,
}

impl Reading {
    fn segment(&mut self, number: u64, path: &Path, bytes: &[u8]) -> Result<(), OpenError> {
        let mut at = HEAD;
        while at < bytes.len() {
            let record = match frame::record(bytes, at) {
                Ok(record) => record,
                Err(Unreadable::Broken) => break,
                Err(Unreadable::Newer(kind)) => {
                    let format =
                        format!("a record of kind {kind}, which this version does not know");
                    return Err(OpenError::Newer { path: path.to_owned(), format });
                }
            };
            let place = Place {
                at: Position { segment: number, offset: at as u64 },
                size: u32::try_from(record.size()).unwrap_or(u32::MAX),
            };
            match record.kind {
                Kind::State => {
                    self.apart.remove(record.key);
                    self.states.insert(*record.key, Chain::of(place));
                }
                Kind::Gone => {
                    self.apart.remove(record.key);
                    self.states.remove(record.key);
                }
                Kind::Change => self.change(record.key, place, record.payload),
                Kind::Synced => self.marked(record.payload),
            }
            at += record.size();
        }
        self.ends.insert(number, (at as u64, (bytes.len() - at) as u64));
        // Behind a break only this is of use: whether it was promised that there is none.
        for behind in at + 1..bytes.len() {
            if let Ok(record) = frame::record(bytes, behind)
                && record.kind == Kind::Synced
            {
                self.marked(record.payload);
            }
        }
        Ok(())
    }

    fn change(&mut self, key: &[u8; 32], place: Place, payload: &[u8]) {
        let before = Place::split(payload).map(|(before, _)| before);
        if let Some(chain) = self.states.get_mut(key).filter(|chain| Some(chain.last) == before) {
            *chain = chain.with(place);
        } else if let Some((last, _)) =
            self.apart.get_mut(key).filter(|(last, _)| Some(*last) == before)
        {
            *last = place;
        } else {
            let apart = Apart { at: place.at, follows: before.map(|before| before.at) };
            self.all_apart.push(apart);
            self.apart.insert(*key, (place, apart));
        }
    }

    fn marked(&mut self, payload: &[u8]) {
        if let Some(position) = Position::read(payload) {
            self.synced = self.synced.max(position);
        }
    }

    fn judge_tears(&self, directory: &Directory) -> Result<(), OpenError> {
        for (number, (end, behind)) in &self.ends {
            let tear = Position { segment: *number, offset: *end };
            if *behind > 0 && tear < self.synced || *behind == 0 && self.lacks(tear) {
                let why = "a record that was written whole is broken or gone".to_owned();
                let path = directory.segment(*number);
                return Err(OpenError::Damaged { path, offset: *end, why });
            }
        }
        Ok(())
    }

    /// `first` is the oldest segment there is.
    fn judge_apart(&self, directory: &Directory, first: u64) -> Result<(), OpenError> {
        let cleaned = |before: Position| before.segment < first;
        let torn = |before: Position| {
            let end = self.ends.get(&before.segment);
            end.is_some_and(|(end, _)| before.offset >= *end)
        };
        let may = |one: &&Apart| one.follows.is_some_and(|one| cleaned(one) || torn(one));
        let unfounded = self.all_apart.iter().find(|one| !may(one));
        // Cleaning wrote it anew before it took away what this follows.
        let never = self.apart.values().map(|(_, apart)| apart);
        let lost = unfounded.or_else(|| never.filter(|one| one.follows.is_some_and(cleaned)).min());
        let Some(Apart { at, .. }) = lost else { return Ok(()) };
        let why = "what a change of a conversation follows is gone".to_owned();
        Err(OpenError::Damaged { path: directory.segment(at.segment), offset: at.offset, why })
    }

    /// Whether the segment is shorter than what was promised of it.
    fn lacks(&self, end: Position) -> bool {
        end.segment == self.synced.segment && end.offset < self.synced.offset
    }
}

/// Opens the segments, and cuts off tears: what is synced from now on must not seem to promise them.
fn open(directory: &Directory, numbers: &[u64], reading: Reading) -> Result<Recovered, OpenError> {
    let mut recovered = Recovered { states: reading.states, ..Recovered::default() };
    for number in numbers {
        let path = directory.segment(*number);
        let (end, behind) = reading.ends.get(number).copied().unwrap_or_default();
        let last = numbers.last() == Some(number);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = Arc::new(file.map_err(OpenError::io(&path))?);
        if behind > 0 {
            let cut = file.set_len(end).and_then(|()| file.sync_all());
            cut.map_err(OpenError::io(&path))?;
        }
        if last {
            let position = Position { segment: *number, offset: end };
            recovered.last = Some((Arc::clone(&file), position));
        }
        recovered.cut += behind;
        let end = (!last).then_some(end);
        recovered.segments.insert(*number, Segment { file, end });
    }
    Ok(recovered)
}

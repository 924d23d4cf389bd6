//! A scrape, taken apart, and the difference of two.

use super::process::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What `/metrics` said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrape {
    /// The type of each family.
    pub(crate) types: BTreeMap<String, String>,
    /// The value of each series, spelled as it came.
    pub(crate) series: BTreeMap<String, f64>,
}

impl Scrape {
    pub(crate) async fn of(process: &Process) -> Self {
        let url = format!("http://{}/metrics", process.admin);
        let text = process.client.get(url).send().await.unwrap().text().await.unwrap();
        Scrape::read(&text)
    }

    fn read(text: &str) -> Self {
        let mut scrape = Scrape::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                scrape.types.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let again = scrape.series.insert(series.to_owned(), value.parse().unwrap());
                assert!(again.is_none(), "{series} stands there twice");
            }
        }
        scrape
    }

    /// The name and labels of each series.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, BTreeMap<&str, &str>)> {
        self.series.keys().map(|series| parts(series))
    }

    /// The labels of a family, `le` aside.
    pub(crate) fn labels(&self, family: &str) -> BTreeSet<String> {
        let of = |name: &str| self.family(name) == family;
        let labels = self
            .parts()
            .filter(|(name, _)| of(name))
            .flat_map(|(_, labels)| labels.into_keys().map(str::to_owned).collect::<Vec<String>>());
        labels.filter(|label| label != "le").collect()
    }

    /// The family of a series of that name.
    pub(crate) fn family(&self, name: &str) -> String {
        let of_histogram = ["_bucket", "_sum", "_count"].into_iter().find_map(|suffix| {
            let family = name.strip_suffix(suffix)?;
            self.types.contains_key(family).then_some(family)
        });
        of_histogram.unwrap_or(name).to_owned()
    }

    /// What a test looks at: all but times as such, the process, and what happens by itself.
    fn counts(&self) -> BTreeMap<String, f64> {
        let looked_at = self.series.iter().filter(|(series, _)| {
            let (name, labels) = parts(series);
            name.starts_with("tigertally_")
                && !name.ends_with("_sum")
                && !name.ends_with("_bucket")
                && name != "tigertally_runtime_tasks"
                && !matches!(labels.get("op"), Some(&("tick" | "ready" | "check")))
        });
        let bare = |series: &str| series.strip_prefix("tigertally_").unwrap_or(series).to_owned();
        looked_at.map(|(series, value)| (bare(series), *value)).collect()
    }
}

/// Name and labels of a series. No value here holds a quote or a comma; a test of labels says so.
fn parts(series: &str) -> (&str, BTreeMap<&str, &str>) {
    let Some((name, labels)) = series.split_once('{') else { return (series, BTreeMap::new()) };
    let labels = labels.strip_suffix('}').unwrap().split(',').map(|label| {
        let (label, value) = label.split_once('=').unwrap();
        (label, value.trim_matches('"'))
    });
    (name, labels.collect())
}

/// What was there before something happened.
pub(crate) struct Before<'p> {
    process: &'p Process,
    counts: BTreeMap<String, f64>,
}

impl<'p> Before<'p> {
    pub(crate) async fn of(process: &'p Process) -> Self {
        Before { process, counts: Scrape::of(process).await.counts() }
    }

    /// Waits until exactly these series have moved, by so much, and takes that as the new beginning.
    pub(crate) async fn moved(&mut self, what: &str, expected: &[(&str, f64)]) {
        let mut wanted = BTreeMap::new();
        for (series, by) in expected {
            *wanted.entry((*series).to_owned()).or_insert(0.0) += by;
        }
        let end = Instant::now() + Duration::from_secs(15);
        loop {
            let counts = Scrape::of(self.process).await.counts();
            let moved: BTreeMap<String, f64> = counts
                .iter()
                .map(|(series, now)| {
                    (series.clone(), now - self.counts.get(series).copied().unwrap_or(0.0))
                })
                .filter(|(_, by)| *by != 0.0)
                .collect();
            if moved == wanted {
                self.counts = counts;
                return;
            }
            assert!(Instant::now() < end, "{what}\n moved {moved:#?}\nwanted {wanted:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

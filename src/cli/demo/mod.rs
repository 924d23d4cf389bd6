//! `tigertally demo`: the story of one order query, played over real HTTP.
//!
//! It starts a scripted upstream and two guards in this process, and plays an application against
//! them with a plain HTTP client: two model calls for an answer, a user who changes their mind, and
//! each way in which a tool's result can be wrong. Every step says what it expects (status, code, and
//! how many requests reached the model) and compares; the program ends with 0 only if all came out as
//! told. So it is a first look for people and a smoke test for machines at once.

mod agent;
mod invitation;
mod play;
mod stage;
mod story;
mod timeline;

use std::io::{self, Write as _};
use std::process::ExitCode;

/// Plays the story; with `keep`, stays up afterwards for the reader to try things. 0 when every step
/// came out as told, 1 otherwise.
#[must_use]
pub fn run(keep: bool) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    runtime.block_on(async {
        let stage = match stage::Stage::start().await {
            Ok(stage) => stage,
            Err(error) => return failed(&error),
        };
        let passed = match tell(&stage, timeline::Timeline::on_stdout()).await {
            Ok(passed) => passed,
            Err(error) => return failed(&error),
        };
        if keep {
            let _ = writeln!(io::stdout(), "\n{}", invitation::text(&stage));
            let _ = tokio::signal::ctrl_c().await;
        }
        stage.close().await;
        if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    })
}

/// Plays the story; whether every step came out as told.
async fn tell(stage: &stage::Stage, mut timeline: timeline::Timeline) -> io::Result<bool> {
    timeline.opening(&stage.guard, &stage.upstream)?;
    let mut play = play::Play::new(stage, timeline);
    story::tell(&mut play).await?;
    play.summary()
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(io::stderr(), "tigertally demo: {error}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::stage::Stage;
    use super::timeline::Timeline;
    use parking_lot::Mutex;
    use std::io::{self, Write};
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().clone()).unwrap()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn with_the_guard_the_story_comes_out_as_told() {
        let stage = Stage::start().await.unwrap();
        let page = Page::default();
        let timeline = Timeline::new(Box::new(page.clone()), false);
        let passed = super::tell(&stage, timeline).await.unwrap();
        let text = page.text();
        assert!(passed, "{text}");
        assert!(text.lines().count() <= 64, "short enough to be read");
        stage.close().await;
    }

    /// The demo must notice a guard that guards nothing: here the model itself stands in its place.
    #[tokio::test]
    async fn without_a_guard_the_story_differs_and_says_where() {
        let stage = Stage::unguarded().await.unwrap();
        let page = Page::default();
        let timeline = Timeline::new(Box::new(page.clone()), false);
        assert!(!super::tell(&stage, timeline).await.unwrap());
        let text = page.text();
        assert_eq!(text.matches("DIFFERS").count(), 5, "{text}");
        assert!(text.contains("told 422 stale and 0"), "{text}");
        assert!(!text.contains('\x1b'), "no colours unless asked for");
    }
}

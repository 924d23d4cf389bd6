//! The built program before such upstreams: afterwards it has open what it had open before, and no socket more.

use super::program::Program;
use super::recorder::{Recorder, Step};
use super::{Case, Raw, answers, raw, request, streams};
use std::time::{Duration, Instant};

fn files(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

async fn one(program: &Program, case: &Case) {
    let address = program.url.trim_start_matches("http://").parse().unwrap();
    let mut client = Raw::connect(address).await;
    client.send(request(case.stream)).await;
    assert!(client.answer().await.is_some(), "{}: no answer", case.name);
}

#[tokio::test]
async fn every_file_comes_back() {
    let upstream = Recorder::start().await;
    let env = [
        ("TIGERTALLY_UPSTREAM__FIRST_BYTE_TIMEOUT", "300ms"),
        ("TIGERTALLY_UPSTREAM__IDLE_TIMEOUT", "300ms"),
        ("TIGERTALLY_UPSTREAM__RID", "false"),
        ("TIGERTALLY_LIMITS__BODY_BYTES", "1 MiB"),
    ];
    let up = async |url: &str| {
        let address = url.trim_start_matches("http://");
        tokio::net::TcpStream::connect(address).await.is_ok()
    };
    let program = Program::start(&format!("http://{}", upstream.address), &env, up).await;
    let mut before = None;
    for case in [answers::heads(), answers::bodies(), streams::broken()].into_iter().flatten() {
        upstream.will([case.script.clone(), vec![Step::Close]].concat());
        one(&program, &case).await;
        upstream.until(case.name, |up| up.open() == 0).await;
        let end = Instant::now() + raw::PATIENCE;
        let wanted = *before.get_or_insert_with(|| files(program.id()));
        while files(program.id()) > wanted {
            assert!(Instant::now() < end, "{}: {wanted} before", case.name);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

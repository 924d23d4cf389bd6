//! How it reads: each of these is what a person sees who tries it for the first time.

use crate::check_in;
use std::path::Path;

/// What it says of a file of that content.
fn read(name: &str, content: &str, args: &[&str]) -> (String, i32) {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join(name), content).unwrap();
    let mut all = vec![name];
    all.extend(args);
    let said = check_in(scratch.path(), &all, b"");
    (said.out, said.code)
}

#[test]
fn each_output_reads_as_it_should() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check/words");
    let mut seen = 0;
    let mut wrong = String::new();
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "out") {
            continue;
        }
        seen += 1;
        let name = path.file_name().unwrap().to_str().unwrap();
        let (said, code) = read(name, &std::fs::read_to_string(&path).unwrap(), &[]);
        let said = format!("{said}[exit code {code}]\n");
        let kept = path.with_extension("out");
        if std::env::var_os("UPDATE_WORDS").is_some() {
            std::fs::write(&kept, &said).unwrap();
        }
        let expected = std::fs::read_to_string(&kept).unwrap_or_default();
        if said != expected {
            wrong += &format!("{name}:\n{said}");
        }
    }
    assert!(seen >= 8, "{seen}");
    assert!(wrong.is_empty(), "not as it is kept (UPDATE_WORDS=1 keeps it anew):\n{wrong}");
}

/// Colours are for terminals: a pipe gets none, whatever else is set.
#[test]
fn a_pipe_gets_no_colours() {
    let (said, code) = read("list.json", r#"[{"role":"tool","tool_call_id":"a"}]"#, &[]);
    assert!(code == 1 && said.contains("orphan_result") && !said.contains('\x1b'), "{said}");
}

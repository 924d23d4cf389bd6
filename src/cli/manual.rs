//! What `--help` and the manual pages tell beside the flags: for each command what it is for, two examples at
//! least, and its exit codes.

/// Of the program as a whole.
pub(super) const PROGRAM: &str = "\
Begin with `tigertally demo`, which needs no model, or with

  tigertally serve --upstream http://127.0.0.1:30000

and point your client at http://127.0.0.1:8090/v1. If a model API says that a tool_call_id was not \
    found, save the request and ask

  tigertally check request.json

Exit codes: 0 all is well, 1 it failed, 2 the input cannot be used.
Colours are for terminals; NO_COLOR=1 turns them off.";

pub(super) const SERVE: &str = "\
Examples:
  tigertally serve --upstream http://127.0.0.1:30000
  tigertally serve --profile observe         judge and count live traffic, hold nothing back
  tigertally serve --config /etc/tigertally.toml --store redis://redis:6379

Nothing has to be configured. Flags beat the environment, which beats the file, which beats the \
    defaults.

Environment:
  TIGERTALLY_UPSTREAM_URL          like --upstream
  TIGERTALLY_LISTEN                like --listen
  TIGERTALLY_<SECTION>__<KEY>      any key of the file: TIGERTALLY_GUARD__PROFILE=observe
  TIGERTALLY_UPSTREAM__API_KEY     the upstream's key
  RUST_LOG                         what is logged [default: info]
  NO_COLOR                         no colours in the log

SIGHUP, and a change of the file or of one that it names, reads them again; SIGTERM and SIGINT \
    drain, and a second one ends that at once.

`tigertally config keys` lists every key with its default; `tigertally config check FILE` prints \
    what a file resolves to.

Exit codes: 0 ended by a signal, 1 it cannot start, 2 the configuration cannot be used.";

pub(super) const DEMO: &str = "\
Examples:
  tigertally demo            play the story, and say of each step whether it came out as told
  tigertally demo --keep     and leave both servers up, to try requests of your own

Exit codes: 0 every step came out as told, 1 one did not.";

pub(super) const SCRIPTED_UPSTREAM: &str = "\
Examples:
  tigertally scripted-upstream                       tells the order story on 127.0.0.1:30000
  tigertally scripted-upstream --script script.json --listen 127.0.0.1:30001

docs/scripted-upstream.md tells what a script can say.

Exit codes: 0 ended by a signal, 1 it cannot listen, 2 the script cannot be used.";

pub(super) const CHECK: &str = "\
Examples:
  tigertally check request.json                        the body that the client sent
  curl -sN … | tigertally check                        what the server answered, streamed or not
  tigertally check answer.json --tools request.json    an answer, by what its request offered
  tigertally check traffic.har                         what a browser or a proxy tool saved
  tigertally check calls.jsonl --json                  a log, for a script

Each fault is told with line and column, place, code, rule and way out: the texts that the proxy \
    sends. Contents, arguments and keys are not printed.

Known logs: OpenAI's batches and stored completions, LiteLLM's standard payload, LangSmith's runs \
    (of OpenAI clients and of LangChain), and records with `request` and `response`. docs/check.md \
    has the shapes and the JSON document's schema.

Whether a result is still wanted, in time, or sent twice is known to a running proxy only.

Exit codes: 0 clean, 1 faults, 2 the input cannot be used.";

pub(super) const EXPLAIN: &str = "\
Examples:
  tigertally explain 6f1c… --record /var/log/tigertally/tasks.jsonl
  kubectl logs agent-guard | tigertally explain 6f1c… --record -

Every answer of the proxy bears x-request-id, also a refusal. With that id, explain tells what the \
    exchange was, what was found in it and where, the rule behind it, what the ledger held of the \
    call at that time, and what passes instead:

  curl -si http://127.0.0.1:8090/v1/chat/completions … | grep -i x-request-id

The record is written when telemetry.record_file is set. A refusal is written at once; an exchange \
    that passed, when its task ends. With several replicas, name the files of all of them: a task \
    is written by the one that ended it.

Exit codes: 0 found, 1 not found, 2 the files or the configuration cannot be used.";

pub(super) const KEYS: &str = "\
Examples:
  tigertally keys add --file keys.toml --name support-agent
  tigertally keys list --file keys.toml

The file holds salted hashes. Name it in auth.keys_file, with auth.mode = \"keys\"; a running \
    proxy takes a change within a few seconds.

Exit codes: 0 done, 1 the file cannot be written, 2 it or the flags cannot be used.";

pub(super) const KEYS_ADD: &str = "\
Examples:
  tigertally keys add --file keys.toml --name support-agent
  tigertally keys add --file keys.toml --name trial --model qwen3 --tool get_order --expires 30d";

pub(super) const KEYS_LIST: &str = "\
Examples:
  tigertally keys list --file keys.toml
  tigertally keys list --file keys.toml | grep expired";

pub(super) const KEYS_REMOVE: &str = "\
Examples:
  tigertally keys remove --file keys.toml 3kQx9Zb1
  tigertally keys list --file keys.toml                tells the ids";

pub(super) const CONFIG: &str = "\
Examples:
  tigertally config check /etc/tigertally.toml
  tigertally config keys limits

Exit codes: 0 done, 2 the file cannot be used, or there is no such key.";

pub(super) const CONFIG_CHECK: &str = "\
Examples:
  tigertally config check /etc/tigertally.toml
  TIGERTALLY_GUARD__PROFILE=strict tigertally config check t.toml

Exit codes: 0 it can be used, 2 it cannot.";

pub(super) const CONFIG_KEYS: &str = "\
Examples:
  tigertally config keys                               all of them
  tigertally config keys store                         those of a section
  tigertally config keys limits.body_bytes

docs/configuration.md is the same with what belongs together.

Exit codes: 0 printed, 2 there is no such key.";

pub(super) const HEALTH: &str = "\
Examples:
  tigertally health                                  is it ready: store and upstream answer
  tigertally health --live                           does it live: for what restarts it
  tigertally health http://127.0.0.1:30000/health    the scripted upstream, or any other server
  until tigertally health; do sleep 1; done          wait for it in a script

It is the health check of the container, which has no shell and no curl. No configuration is read; \
    where the file says admin.listen, say it here too, by the flag or in TIGERTALLY_ADMIN__LISTEN. \
    The token is not needed.

Exit codes: 0 it is well, 1 it is not or does not answer, 2 the flags cannot be used.";

pub(super) const COMPLETIONS: &str = "\
Examples:
  tigertally completions bash > ~/.local/share/bash-completion/completions/tigertally
  tigertally completions zsh > ~/.zfunc/_tigertally    (with ~/.zfunc in fpath)
  tigertally completions fish > ~/.config/fish/completions/tigertally.fish";

pub(super) const MAN: &str = "\
Examples:
  tigertally man | man -l -
  tigertally man --dir /usr/local/share/man/man1       this page and one for each command

Exit codes: 0 written, 1 it cannot be written.";

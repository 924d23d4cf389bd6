//! The command line, as it is typed.

use super::check::form::Form;
use super::{health, manual};
use crate::policy::{self, FlagOverrides, Sources};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use http::Uri;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "tigertally",
    version,
    about = "A guarding reverse proxy for tool calls",
    long_about = "A guarding reverse proxy for tool calls.\n\n\
        It stands between agent clients and SGLang (or any OpenAI-compatible server) and lets a tool \
        call out, and a tool result back in, only when the two match and belong to the task that the \
        user is waiting for now.",
    after_help = manual::PROGRAM,
    arg_required_else_help = true
)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy
    #[command(after_help = manual::SERVE)]
    Serve(Serve),
    /// Play the order story against a scripted model, over real HTTP, and print it
    #[command(after_help = manual::DEMO)]
    Demo {
        /// Keep both servers running afterwards, to try requests of your own
        #[arg(long)]
        keep: bool,
    },
    /// Run the scripted model server alone, for tests and trials
    #[command(after_help = manual::SCRIPTED_UPSTREAM)]
    ScriptedUpstream {
        /// Where it listens
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:30000")]
        listen: SocketAddr,
        /// What it answers, as a JSON file [default: the order story]
        #[arg(long, value_name = "FILE")]
        script: Option<PathBuf>,
    },
    /// Judge a saved request, answer, stream, HAR file or log by the proxy's rules
    #[command(after_help = manual::CHECK)]
    Check(Check),
    /// Tell the story of one exchange from the task record
    #[command(after_help = manual::EXPLAIN)]
    Explain(Explain),
    /// Make, list and withdraw keys of clients (auth.mode = "keys")
    #[command(after_help = manual::KEYS)]
    Keys {
        /// What to do with them.
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Look at a configuration
    #[command(after_help = manual::CONFIG)]
    Config {
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Ask a running proxy whether it is well
    #[command(after_help = manual::HEALTH)]
    Health(Health),
    /// Print what a shell needs to complete this command line
    #[command(after_help = manual::COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each command
    #[command(after_help = manual::MAN)]
    Man {
        /// Write them all into this directory
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// What to check.
#[derive(Args, Debug)]
pub struct Check {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// What it is
    #[arg(long = "as", value_name = "FORM", value_enum, default_value = "auto")]
    pub read_as: Form,
    /// The tools that were offered, where no request says so: a list of tools, or a request
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// Write one JSON document (docs/check.md)
    #[arg(long)]
    pub json: bool,
}

/// What to explain.
#[derive(Args, Debug)]
pub struct Explain {
    /// The exchange: the x-request-id of its answer, the exchange of its log line, or the rid at the upstream
    #[arg(value_name = "REQUEST_ID")]
    pub request_id: String,
    /// A file of the task record; those rotated from it are read as well, and `-` is standard input; may be
    /// repeated [default: telemetry.record_file]
    #[arg(long, value_name = "FILE")]
    pub record: Vec<PathBuf>,
    /// The configuration that names the file, when --record does not [default: none]
    #[arg(long, value_name = "FILE", env = "TIGERTALLY_CONFIG")]
    pub config: Option<PathBuf>,
}

/// What to ask.
#[derive(Args, Debug)]
pub struct Health {
    /// What to ask instead of the admin port: http://HOST:PORT/PATH
    #[arg(value_name = "URL", value_parser = health::read_url, conflicts_with = "live")]
    pub url: Option<Uri>,
    /// Ask whether it lives (/livez), not whether it is ready (/readyz: store and upstream answer, no drain)
    #[arg(long)]
    pub live: bool,
    /// Where the proxy's admin port listens
    #[arg(
        long,
        value_name = "ADDR",
        env = "TIGERTALLY_ADMIN__LISTEN",
        default_value = "127.0.0.1:9464"
    )]
    pub admin_listen: SocketAddr,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", value_parser = policy::duration, default_value = "3s")]
    pub timeout: Duration,
}

/// What to do with the keys of clients.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key and print it, this once
    #[command(
        after_help = manual::KEYS_ADD,
        long_about = "Make a key and print it. The file keeps a salted hash only, so this is the one \
        time that the key is shown. A running proxy takes it within a few seconds."
    )]
    Add(NewKey),
    /// List the keys of a file: ids, names, what they may do, and until when
    #[command(after_help = manual::KEYS_LIST)]
    List {
        /// The keys file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Withdraw a key
    #[command(after_help = manual::KEYS_REMOVE)]
    Remove {
        /// The keys file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Its id: what stands between `tt_` and the next `_`
        id: String,
    },
}

/// A key to make.
#[derive(Args, Debug)]
pub struct NewKey {
    /// The keys file; made when it is not there
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Whom it proves. Two keys may bear one name, so that they can be exchanged
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// The tenant within which the name counts
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// A model that it may ask; may be repeated [default: any]
    #[arg(long = "model", value_name = "MODEL")]
    pub models: Vec<String>,
    /// A tool that may be proposed to it; may be repeated [default: any that the configuration allows]
    #[arg(long = "tool", value_name = "TOOL")]
    pub tools: Vec<String>,
    /// Its end: a time from now (`90d`), or a point in time (`2027-06-30T00:00:00Z`) [default: none]
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
}

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print what a file resolves to, or everything that is wrong with it
    #[command(
        after_help = manual::CONFIG_CHECK,
        long_about = "Print what a file resolves to, or everything that is wrong with it: file and \
        line, key, and what to do.\n\nThe environment (TIGERTALLY_…) counts as it does for `serve`. \
        Secrets are never printed. Exit code 0 when the file can be used, 2 when it cannot."
    )]
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print every key with its default and what it is
    #[command(after_help = manual::CONFIG_KEYS)]
    Keys {
        /// Only this key, or those of this section
        #[arg(value_name = "KEY")]
        under: Option<String>,
        /// Write one JSON document
        #[arg(long)]
        json: bool,
    },
}

/// Settings of `serve`.
#[derive(Args, Debug, Default)]
pub struct Serve {
    /// Configuration file (TOML) [default: none]
    #[arg(long, value_name = "FILE", env = "TIGERTALLY_CONFIG")]
    pub config: Option<PathBuf>,
    /// Server to forward to [default: http://127.0.0.1:30000]
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// Where clients connect [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Where metrics and health are read [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<String>,
    /// Where conversations are kept: `embedded:DIRECTORY`, `redis://HOST:PORT` or `memory:` [default: embedded, in the
    /// system's or the user's directory for state]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// What to refuse: observe (nothing, only count), standard, or strict [default: standard]
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// Allow --listen to be reached by others, though nobody is asked who they are
    #[arg(long)]
    pub insecure: bool,
}

impl Serve {
    /// Where the policy comes from, with this environment.
    #[must_use]
    pub fn sources(self, env: Vec<(String, String)>) -> Sources {
        let flags = FlagOverrides {
            upstream: self.upstream,
            listen: self.listen,
            admin_listen: self.admin_listen,
            store: self.store,
            profile: self.profile,
            insecure: self.insecure,
        };
        Sources { file: self.config, env, flags }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Command {
        CommandLine::try_parse_from(line.split_whitespace()).unwrap().command
    }

    #[test]
    fn the_command_line_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_flag_of_serve_reaches_the_sources() {
        let line = "tigertally serve --config c.toml --upstream http://u --listen 127.0.0.1:1 \
                    --admin-listen 127.0.0.1:2 --store memory: --profile strict --insecure";
        let Command::Serve(serve) = parse(line) else { panic!("serve") };
        let sources = serve.sources(Vec::new());
        assert_eq!(sources.file, Some("c.toml".into()));
        let flags = sources.flags;
        assert_eq!(flags.upstream.as_deref(), Some("http://u"));
        assert_eq!(flags.listen.as_deref(), Some("127.0.0.1:1"));
        assert_eq!(flags.admin_listen.as_deref(), Some("127.0.0.1:2"));
        assert_eq!(flags.store.as_deref(), Some("memory:"));
        assert_eq!(flags.profile.as_deref(), Some("strict"));
        assert!(flags.insecure);
    }

    #[test]
    fn the_other_commands_are_understood() {
        assert!(matches!(parse("tigertally demo --keep"), Command::Demo { keep: true }));
        let upstream = parse("tigertally scripted-upstream --listen 127.0.0.1:0 --script s.json");
        let Command::ScriptedUpstream { listen, script } = upstream else { panic!("upstream") };
        assert_eq!((listen.port(), script), (0, Some("s.json".into())));
        let line =
            "tigertally keys add --file k --name n --model a --model b --tool t --expires 9d";
        let Command::Keys { command: KeysCommand::Add(new) } = parse(line) else { panic!("keys") };
        assert_eq!((new.models.len(), new.tools.len(), new.tenant), (2, 1, None));
        let remove = parse("tigertally keys remove --file k 3kQx");
        assert!(matches!(remove, Command::Keys { command: KeysCommand::Remove { .. } }));
        let check = parse("tigertally config check f.toml");
        let Command::Config { command: ConfigCommand::Check { file } } = check else {
            panic!("check")
        };
        assert_eq!(file, PathBuf::from("f.toml"));
        let keys = parse("tigertally config keys limits --json");
        let Command::Config { command: ConfigCommand::Keys { under, json } } = keys else {
            panic!("keys")
        };
        assert_eq!((under.as_deref(), json), (Some("limits"), true));
    }

    /// `--help` teaches: what a command is for, how it is called, and what its exit code says.
    #[test]
    fn each_command_shows_examples_and_says_its_exit_codes() {
        let mut seen = 0;
        let mut waiting = vec![("tigertally".to_owned(), CommandLine::command())];
        while let Some((line, command)) = waiting.pop() {
            for inner in command.get_subcommands() {
                waiting.push((format!("{line} {}", inner.get_name()), inner.clone()));
            }
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let shown = |line: &str| help.matches(&format!("{line} ")).count();
            if line == "tigertally" {
                assert!(help.contains("Exit codes:") && help.contains("NO_COLOR"), "{help}");
                continue;
            }
            seen += 1;
            assert!(shown(&line) >= 2 || line == "tigertally keys remove", "{line}:\n{help}");
            // Those of `keys` are told once.
            let inherits = line.starts_with("tigertally keys ") || line.ends_with("completions");
            assert!(inherits || help.contains("Exit codes:"), "{line}:\n{help}");
            // What is set in columns cannot be wrapped; prose is one line, for whatever width there is.
            let wide = |line: &&str| line.starts_with(' ') && line.chars().count() > 96;
            assert_eq!(help.lines().find(wide), None, "{line}");
        }
        assert!(seen >= 13, "{seen}");
    }

    #[test]
    fn check_reads_standard_input_unless_a_file_is_named() {
        let Command::Check(check) = parse("tigertally check") else { panic!("check") };
        assert_eq!((check.file, check.read_as), (PathBuf::from("-"), Form::Auto));
        let line = "tigertally check a.json --as stream --tools t.json --json";
        let Command::Check(check) = parse(line) else { panic!("check") };
        assert_eq!((check.file, check.read_as), (PathBuf::from("a.json"), Form::Stream));
        assert!(check.json && check.tools == Some(PathBuf::from("t.json")));
    }

    #[test]
    fn health_asks_the_admin_port_unless_told_otherwise() {
        let Command::Health(health) = parse("tigertally health --live --timeout 500ms") else {
            panic!("health")
        };
        assert!(health.live && health.url.is_none());
        assert_eq!(health.timeout, Duration::from_millis(500));
        let Command::Health(health) = parse("tigertally health http://127.0.0.1:30000/health")
        else {
            panic!("health")
        };
        assert!(health.url.is_some_and(|url| url.path() == "/health"));
    }

    #[test]
    fn what_is_unknown_is_unusable_input() {
        for line in [
            "tigertally",
            "tigertally srve",
            "tigertally serve --upstrm x",
            "tigertally config",
            "tigertally health 9464",
        ] {
            let error = CommandLine::try_parse_from(line.split_whitespace()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
        for line in ["tigertally --help", "tigertally --version", "tigertally serve --help"] {
            let error = CommandLine::try_parse_from(line.split_whitespace()).unwrap_err();
            assert_eq!(error.exit_code(), 0, "{line}");
        }
    }
}

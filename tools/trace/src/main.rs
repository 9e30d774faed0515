//! `zk-nalloc-trace`: what a trace shows, in numbers, and again.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};
use zk_nalloc_trace::summary::Summary;
use zk_nalloc_trace::{Error, Story, Trace, pack, picture, see_apart};

/// Reads what a process recorded under `ZK_NALLOC_TRACE=FILE`
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Write one page that shows a proof's memory over time
    Picture {
        /// The trace, packed or not
        file: PathBuf,
        /// The page [default: the trace's name with .html]
        #[arg(long, short)]
        output: Option<PathBuf>,
        /// What the page is called [default: the trace's name]
        #[arg(long)]
        title: Option<String>,
    },
    /// Print what a trace comes to
    Summary {
        /// The trace, packed or not
        file: PathBuf,
        /// As JSON, for other programs
        #[arg(long)]
        json: bool,
    },
    /// Pack a trace to a quarter of its length; every command here reads it so
    Pack {
        /// The trace
        file: PathBuf,
        /// The packed one [default: the trace's name with .gz]
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
    /// Take and free the same blocks in the same order under each allocator of the comparison, and print time, faults and
    /// peaks; needs the sources of the project beside it
    Replay {
        /// The trace, packed or not
        file: PathBuf,
        /// Only these allocators, with commas between
        #[arg(long)]
        allocator: Option<String>,
        /// Processes per allocator; every second turn runs them backwards
        #[arg(long)]
        turns: Option<u32>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode, Error> {
    match task {
        Task::Picture { file, output, title } => {
            let trace = Trace::read(&file)?;
            let output = output.unwrap_or_else(|| page_of(&stem(&file)));
            see_apart(&file, &output)?;
            let title = title.unwrap_or_else(|| {
                stem(&file).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
            });
            let page = picture::page(&title, &trace, &Story::of(&trace));
            std::fs::write(&output, page).map_err(|cause| Error::doing(output.display(), cause))?;
            say(&output.display())?;
        }
        Task::Summary { file, json } => {
            let trace = Trace::read(&file)?;
            let story = Story::of(&trace);
            let summary = Summary::of(&trace, &story);
            if json {
                let text = serde_json::to_string_pretty(&summary);
                say(&text.map_err(|cause| Error::doing("writing JSON", cause))?)?;
            } else {
                say(&summary.table(&story))?;
            }
        }
        Task::Pack { file, output } => {
            let output = output.unwrap_or_else(|| {
                // The name of a packed one stays, and is refused.
                let mut name = stem(&file).into_os_string();
                name.push(".gz");
                name.into()
            });
            let len = pack(&file, &output)?;
            say(&format_args!("{}: {len} bytes", output.display()))?;
        }
        Task::Replay { file, allocator, turns } => return replay(&file, allocator, turns),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a line; whoever reads may stop to (`head`).
fn say(what: &dyn std::fmt::Display) -> Result<(), Error> {
    match writeln!(std::io::stdout(), "{what}") {
        Err(cause) if cause.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::doing("writing", cause)),
        _ => Ok(()),
    }
}

/// The page of a trace, named as it is: not as another's, where they differ in what looks like an extension (`run.101`).
fn page_of(trace: &Path) -> PathBuf {
    if trace.extension().is_some_and(|extension| extension == "trace") {
        return trace.with_extension("html");
    }
    let mut name = trace.as_os_str().to_owned();
    name.push(".html");
    name.into()
}

/// The name without what tells that it is packed.
fn stem(file: &Path) -> PathBuf {
    if file.extension().is_some_and(|extension| extension == "gz") {
        file.with_extension("")
    } else {
        file.into()
    }
}

/// Hands over to the comparison, which can build a program around each allocator.
fn replay(file: &Path, allocator: Option<String>, turns: Option<u32>) -> Result<ExitCode, Error> {
    // It is run in another folder.
    let file = file.canonicalize().map_err(|cause| Error::doing(file.display(), cause))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--release", "--package", "zk-compare", "--"]).current_dir(root);
    if let Some(allocator) = allocator {
        command.args(["--allocator", &allocator]);
    }
    if let Some(turns) = turns {
        command.args(["--turns", &turns.to_string()]);
    }
    let status = command.arg("replay").arg(file).status();
    let status =
        status.map_err(|cause| Error::doing("starting cargo, which builds the comparison", cause))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
